"""A task's way out, from its submission to what a person reads of it."""

from datetime import UTC, datetime, timedelta

from longstride.agent.prompt import opening
from longstride.client.cli.show import step_document
from longstride.client.screen.step_lines import StepLines
from longstride.client.screen.symbols import symbols
from longstride.client.step_view import StepView, history
from longstride.contracts.artifact import ref_for
from longstride.contracts.v1.action import Observation
from longstride.contracts.v1.commands import ExecuteAction, SubmitTask
from longstride.contracts.v1.egress import Connection, Egress, EgressRule, Traffic
from longstride.contracts.v1.events import ActionExecuted
from services.planner.references import references
from tests.support.rehearsal import Rehearsal

EGRESS = Egress(rules=(EgressRule(host="api.example.com"),), max_mbytes=8)
NOW = datetime(2026, 1, 2, tzinfo=UTC)
LOG = ref_for(b"{}\n", session="s", kind="connections", media_type="application/jsonl")


def connection(host: str, verdict: str, why: str) -> Connection:
    address = "93.184.215.14" if verdict == "allowed" else None
    return Connection(
        **{"host": host, "port": 443, "address": address, "sent": 100, "received": 2048, "verdict": verdict},
        **{"why": why, "started_at": NOW, "ended_at": NOW + timedelta(seconds=1)},
    )


TRAFFIC = Traffic(
    connections=(
        connection("api.example.com", "allowed", "rule api.example.com:443"),
        connection("evil.example.net", "refused", "not on the list"),
    ),
    total=30,
    refused=29,
    sent=3000,
    received=61_440,
    log=LOG,
)


def test_a_command_carries_the_tasks_way_out() -> None:
    task = Rehearsal("x", egress=EGRESS).start().propose("shell", command="curl x")
    (command,) = task.sent(ExecuteAction)
    assert command.egress == EGRESS


def test_a_part_of_a_task_reaches_what_the_task_reaches() -> None:
    task = Rehearsal("x", egress=EGRESS).start()
    task.propose("delegate", tasks=[{"name": "part", "instruction": "Do it."}])
    (part,) = task.sent(SubmitTask)
    assert part.egress == EGRESS


def test_the_agent_is_told_where_it_may_go() -> None:
    told = opening(SubmitTask(instruction="Fetch it.", egress=EGRESS))[1].content
    assert told.startswith("Fetch it.\n\nPrograms that honour HTTP_PROXY")
    assert "\n- api.example.com:443\n" in told
    assert opening(SubmitTask(instruction="Fetch it."))[1].content == "Fetch it."


def test_what_went_through_is_kept_shown_and_never_collected() -> None:
    task = Rehearsal("x", egress=EGRESS).start().propose("shell", command="curl x")
    task.hear(ActionExecuted(step=1, observation=Observation(status="ok", text="ok"), traffic=TRAFFIC))
    step = history(task.events).steps[1]
    assert step.traffic == TRAFFIC
    assert [found.kind for found in references(task.events) if found.ref == LOG] == ["connections"]
    assert step_document(step)["traffic"]["total"] == 30


def lines(step: StepView, *most: int) -> list[str]:
    return [line.plain.strip() for line in StepLines(140, symbols("utf-8")).network(step, *most)]


def test_connections_as_lines() -> None:
    allowed = (
        "network       api.example.com:443 at 93.184.215.14: 100 B sent, 2.0 KiB received, rule api.example.com:443"
    )
    rest = "more, of 30 in all; 29 refused: see the task's artifacts"
    assert lines(StepView(1, NOW, traffic=TRAFFIC)) == [
        allowed,
        "network       evil.example.net:443 refused: not on the list",
        f"network       and 28 {rest}",
    ]
    assert lines(StepView(1, NOW, traffic=TRAFFIC), 1) == [allowed, f"network       and 29 {rest}"]
    assert lines(StepView(1, NOW)) == []


def test_what_the_executor_answered_itself_was_at_no_address() -> None:
    one = connection("packages.longstride", "allowed", "package index: a.whl, from the cache")
    traffic = Traffic(connections=(one.model_copy(update={"address": None, "port": 80}),), total=1)
    assert lines(StepView(1, NOW, traffic=traffic)) == [
        "network       packages.longstride:80: 100 B sent, 2.0 KiB received, package index: a.whl, from the cache"
    ]
