"""A service starts when what it needs is there, says what is missing otherwise, and ends without losing work."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from infra.native.ports import Ports
from longstride.contracts.v1.commands import SubmitTask
from tests.support.deployment import MODULES, ROOT, Deployment, deployed
from tests.support.eventually import eventually
from tests.support.servers import Servers, virtual_host

NOBODY = "127.0.0.1:9"
"""The discard port: nothing listens there."""


@pytest.fixture
def own_amqp_url(servers: Servers) -> Iterator[str]:
    """Queues that the module's deployment does not consume."""
    with virtual_host(servers) as url:
        yield url


@pytest.fixture
def environment(
    servers: Servers, database_url: str, amqp_url: str, bucket: str, tmp_path: Path
) -> Iterator[Mapping[str, str]]:
    """Of a service that has all it needs."""
    idle = Deployment(servers, database_url, amqp_url, bucket, tmp_path)
    yield idle.environment
    idle.stop()


@pytest.mark.parametrize("service", ["planner", "tool-executor"])
@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("LONGSTRIDE_DATABASE_URL", f"postgresql://x@{NOBODY}/x", "gave up on PostgreSQL after 1 s"),
        ("LONGSTRIDE_AMQP_URL", f"amqp://x@{NOBODY}/", "Is it running, and is LONGSTRIDE_AMQP_URL right?"),
        ("LONGSTRIDE_S3_ENDPOINT", f"http://{NOBODY}", "gave up on the artifact store after 1 s"),
        ("LONGSTRIDE_DATABASE_URL", "", "settings: LONGSTRIDE_DATABASE_URL: Field required"),
        ("LONGSTRIDE_PATIENCE_S", "soon", "settings: LONGSTRIDE_PATIENCE_S: "),
    ],
    ids=["no PostgreSQL", "no RabbitMQ", "no S3", "nothing set", "nonsense set"],
)
def test_what_is_missing_at_start_is_waited_for_and_then_named(
    environment: Mapping[str, str], service: str, variable: str, value: str, said: str
) -> None:
    environment = {**environment, "LONGSTRIDE_PATIENCE_S": "1", variable: value}
    result = subprocess.run(
        [sys.executable, "-m", MODULES[service]], env=environment, capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert result.returncode == 78
    assert said in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("service", "checks"), [("planner", {"start"}), ("tool-executor", {"start", "broker", "children"})]
)
def test_a_service_that_still_waits_at_its_start_is_not_well_and_says_for_what(
    environment: Mapping[str, str], tmp_path: Path, service: str, checks: set[str]
) -> None:
    with Ports(tmp_path, ("metrics",)) as ports:
        page = f"http://127.0.0.1:{ports.numbers['metrics']}/healthz"
        environment = {
            **environment,
            "LONGSTRIDE_METRICS_PORT": str(ports.numbers["metrics"]),
            "LONGSTRIDE_DATABASE_URL": f"postgresql://x@{NOBODY}/x",
        }
        process = subprocess.Popen([sys.executable, "-m", MODULES[service]], env=environment, cwd=ROOT)
        try:
            status, _ = eventually(lambda: (said := _asked(page))[0] and said)
            assert status == 503
            status, body = eventually(lambda: "for PostgreSQL" in (said := _asked(page))[1] and said)
            assert status == 503
            assert json.loads(body)["checks"]["start"].startswith("waiting up to 60 s for PostgreSQL")
            assert set(json.loads(body)["checks"]) == checks
        finally:
            process.kill()
            process.wait()


def _asked(page: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(page, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except urllib.error.URLError:
        return 0, ""


def test_a_service_that_is_told_to_end_hands_its_work_over(
    servers: Servers, database_url: str, own_amqp_url: str, bucket: str, tmp_path: Path
) -> None:
    with deployed(servers, database_url, own_amqp_url, bucket, tmp_path, forked=True) as deployment:
        lines = [
            {"tool": "shell", "arguments": {"command": "sleep 3; echo slept"}},
            {"tool": "submit", "arguments": {"answer": "x"}},
        ]
        task_id = deployment.submit(SubmitTask(instruction="Sleep.", policy=deployment.script(lines)))
        eventually(lambda: _acting(deployment, task_id))
        started = time.monotonic()
        assert deployment.terminate("tool-executor") == 0
        assert time.monotonic() - started < 25
        deployment.start("tool-executor")
        assert deployment.ended(task_id)[0].outcome == "succeeded"
        assert deployment.steps(task_id)[0].observation == "slept\n"


def _acting(deployment: Deployment, task_id: str) -> bool:
    with deployment.database.begin() as uow:
        return uow.attempts.open(task_id, "execute") == "leased"


@pytest.mark.parametrize("service", ["planner", "model-worker", "telemetry", "tool-executor", "trainer"])
def test_sigterm_ends_an_idle_service_cleanly(
    servers: Servers,
    database_url: str,
    own_amqp_url: str,
    bucket: str,
    tmp_path: Path,
    service: str,
) -> None:
    other = Deployment(servers, database_url, own_amqp_url, bucket, tmp_path)
    try:
        other.start(service)
        pid = other.processes[service].pid
        eventually(lambda: _working(other, service))
        assert other.terminate(service) == 0, other.logs()
        assert not Path(f"/proc/{pid}").exists()
    finally:
        other.stop()


def _working(deployment: Deployment, service: str) -> bool:
    with deployment.database.begin() as uow:
        return any(worker.service == service for worker in uow.workers.all())
