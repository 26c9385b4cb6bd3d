"""The compose stack as it was brought up: its own services in containers, on its own virtual host, database and bucket.

`make compose-test` brings it up and names it in LONGSTRIDE_COMPOSE; anywhere else there is nothing to look at.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from longstride.observability.edges import observed_edges
from tests.support.compose_stack import COMMAND, SERVICES, ComposeStack, Stranger
from tests.support.eventually import eventually
from tests.support.servers import Servers

pytestmark = [
    pytest.mark.skipif(not os.environ.get(COMMAND), reason="no compose stack: `make compose-test` brings one up"),
    pytest.mark.timeout(240),
]

SCRIPTS = Path(__file__).parent / "scripts"
CSV = {"path": "a.csv", "text": "a\n1\n2\n"}


@pytest.fixture(scope="module")
def compose(servers: Servers) -> ComposeStack:
    return ComposeStack(servers)


@pytest.fixture
def stranger(servers: Servers) -> Iterator[Stranger]:
    with Stranger(servers) as someone:
        yield someone


def task(script: str, **fields: Any) -> dict[str, Any]:
    return {"instruction": "Do as the script says.", "policy": f"scripted:/scripts/{script}.json", **fields}


def outcome(stranger: Stranger) -> tuple[str, dict[str, Any]]:
    accepted, ended = stranger.next(), stranger.next(120)
    assert (accepted["type"], ended["type"]) == ("task_accepted", "task_ended"), (accepted, ended)
    assert accepted["task_id"] == ended["task_id"]
    return ended["task_id"], ended["body"]


def test_a_task_is_planned_executed_checked_and_recorded(compose: ComposeStack, stranger: Stranger) -> None:
    checks = [
        {"kind": "answer", "number": 3},
        {"kind": "command", "run": 'test "$(cat "$LONGSTRIDE_ANSWER")" = "$(wc -l < a.csv)"'},
    ]
    stranger.publish(task("count-lines", inputs=[CSV], checks=checks))
    task_id, ended = outcome(stranger)
    assert (ended["outcome"], ended["reason"], ended["answer"]) == ("succeeded", "checks_passed", "3"), ended
    assert (ended["reward"], [check["passed"] for check in ended["checks"]]) == (1.0, [True, True])
    assert [(s.tool, s.status) for s in compose.steps(task_id)] == [
        ("shell", "failed"),
        ("shell", "ok"),
        ("submit", "ok"),
    ]
    recorded(compose, task_id)
    traced(compose, task_id, ended["trace_id"])


def recorded(compose: ComposeStack, task_id: str) -> None:
    """The trajectory is a row and an object, the workspace's files are objects, the reward is a row."""
    with compose.database() as database:

        def trajectory() -> Any:
            with database.begin() as uow:
                return uow.trajectories.get(task_id)

        found = eventually(trajectory)
        with database.begin() as uow:
            reward, artifacts = uow.rewards.latest(task_id), uow.artifacts.for_task(task_id)
    assert (found.outcome, reward.value if reward else None) == ("succeeded", 1.0)
    assert json.loads(compose.artifacts.get(found.ref)), "the trajectory's object"
    assert {"workspace", "trajectory"} <= {entry.kind for entry in artifacts}
    assert all(compose.artifacts.exists(entry.ref) for entry in artifacts)
    assert {item.key for item in compose.artifacts.list(f"{found.session_id}/")} >= {
        entry.ref.key for entry in artifacts
    }


def traced(compose: ComposeStack, task_id: str, trace_id: str) -> None:
    """One trace, across the services that took part."""
    wanted = {
        "planner -generate-> model-worker",
        "model-worker -generated-> planner",
        "planner -execute_action-> tool-executor",
        "tool-executor -action_executed-> planner",
        "planner -task_ended-> telemetry",
    }
    with compose.database() as database:

        def edges() -> set[str]:
            with database.begin() as uow:
                return {str(edge) for edge in observed_edges(uow.spans.for_task(task_id))}

        eventually(lambda: wanted <= edges())
        with database.begin() as uow:
            assert {span.trace_id for span in uow.spans.for_task(task_id)} == {trace_id}


def test_the_container_holds_a_sandbox_that_sees_nothing_of_it(compose: ComposeStack, stranger: Stranger) -> None:
    stranger.publish(task("look-around"))
    task_id, ended = outcome(stranger)
    assert ended["outcome"] == "succeeded", ended
    around, outside, python, _ = (step.observation or "" for step in compose.steps(task_id))
    assert "1000\nsandbox\n" in around
    assert not {"LONGSTRIDE_DATABASE_URL", compose.servers.secret_key} & set(around.replace("=", "\n").split("\n"))
    assert "app" not in around.split(), "of the image there is /usr alone"
    assert "reached" not in outside
    assert outside.count("No such file or directory") >= 2
    for refused in ("touch: cannot touch '/usr/x'", "unshare: unshare failed", "mount: "):
        assert refused in outside
    assert "True" in python


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_no_power_over_its_container(compose: ComposeStack, service: str) -> None:
    told = compose.shell(service, "id -u; cat /proc/1/status; touch /app/x /opt/x /usr/x || echo refused")
    assert told.startswith("10001\n")
    status = dict(line.split(":\t", 1) for line in told.splitlines() if ":\t" in line)
    assert {status[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert told.endswith("refused\n")


def test_each_service_tells_prometheus_and_whoever_asks_how_it_is(compose: ComposeStack) -> None:
    ask = f"""python - <<'END'
from urllib.request import urlopen
for service in {SERVICES!r}:
    for page in ("healthz", "metrics"):
        print(service, page, urlopen(f"http://{{service}}:9464/{{page}}", timeout=10).read().decode().replace("\\n", " "))
END
"""
    told = {tuple(line.split(" ", 2)[:2]): line for line in compose.shell("planner", ask).splitlines()}
    for service in SERVICES:
        assert '"status": "ok"' in told[service, "healthz"]
        assert "# TYPE longstride_" in told[service, "metrics"]


@pytest.mark.parametrize(
    "service", ["tool-executor", "model-worker", "planner", "telemetry", "rabbitmq", "postgres", "s3"]
)
def test_a_killed_service_loses_nothing(compose: ComposeStack, servers: Servers, service: str) -> None:
    checks = [{"kind": "command", "run": 'test "$(echo $(cat log))" = "1 2 3"'}]
    with Stranger(servers) as stranger:
        stranger.publish(task("three-slow-steps", checks=checks))
        task_id = stranger.next()["task_id"]
    eventually(lambda: len(compose.steps(task_id)) >= 2)
    compose.kill(service)
    compose.up(service)
    head = eventually(lambda: (found := compose.head(task_id)) and found.outcome and found, 150)
    assert (head.outcome, head.reason, head.reward) == ("succeeded", "checks_passed", 1.0)
    assert [(s.step, s.tool, s.status) for s in compose.steps(task_id)] == [
        (1, "shell", "ok"),
        (2, "shell", "ok"),
        (3, "shell", "ok"),
        (4, "submit", "ok"),
    ]


def test_grafana_reads_the_tables_and_changes_nothing(compose: ComposeStack, stranger: Stranger) -> None:
    stranger.publish(task("count-lines", inputs=[CSV]))
    task_id, _ = outcome(stranger)
    url = compose.servers.database_url.replace("//longstride:", "//grafana:")
    with psycopg.connect(url, autocommit=True) as grafana:
        assert grafana.execute("SELECT id FROM tasks WHERE id = %s", [task_id]).fetchall() == [(task_id,)]
        grafana.execute("SET default_transaction_read_only = off")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            grafana.execute("DELETE FROM tasks")
