"""kill -9 of each service at each point between two commits: the task ends once, each step happens once, nothing is left."""

import pytest

from longstride.contracts.flow import FLOW
from longstride.contracts.v1.check import FileCheck
from longstride.contracts.v1.commands import SubmitTask
from longstride.storage.tasks import TaskHead
from tests.chaos.conftest import QUICK
from tests.support.deployment import Deployment
from tests.support.eventually import eventually

APPEND_TWICE = [
    {"tool": "shell", "arguments": {"command": "echo x >> log; cat log"}},
    {"tool": "shell", "arguments": {"command": "echo x >> log; wc -l < log"}},
    {"tool": "submit", "arguments": {"answer": "2"}},
]
"""A step that took effect twice, or not at all, would show in the file."""
TRANSACTION = ("before-1", "after-1", "published-1")
POINTS = {
    "planner": ("arrived", *TRANSACTION),
    "telemetry": ("arrived", *TRANSACTION),
    "model-worker": ("arrived", *TRANSACTION, "before-2", "after-2", "published-2"),
    "tool-executor": ("arrived", *TRANSACTION, "before-2", "after-2", "published-2"),
}
"""A worker's first transaction is its claim, the second its answer."""
ON_THE_WAY = {"submit_task", "generate", "generated", "execute_action", "action_executed", "task_ended"}
CASES = [
    (row.consumer, row.message, point)
    for row in FLOW
    if row.message in ON_THE_WAY and row.consumer in POINTS
    for point in POINTS[row.consumer]
]


def test_every_row_that_a_task_passes_is_covered() -> None:
    assert {message for _, message, _ in CASES} == ON_THE_WAY
    assert len(CASES) == 4 * 4 + 4 + 7 + 7


@pytest.mark.parametrize(("service", "message", "point"), CASES)
def test_a_kill_changes_nothing(deployment: Deployment, service: str, message: str, point: str) -> None:
    deployment.kill(service)
    deployment.start_doomed(service, message, point, **QUICK)
    checks = (FileCheck(path="log", equals="x\nx\n"),)
    task_id = deployment.submit(
        SubmitTask(instruction="Append.", policy=deployment.script(APPEND_TWICE), checks=checks)
    )
    deployment.await_death(service)
    deployment.start(service, **QUICK)
    (head,) = deployment.ended(task_id)
    assert (head.outcome, head.reason, head.steps) == ("succeeded", "checks_passed", 3)
    _happened_once(deployment, head)


def _happened_once(deployment: Deployment, head: TaskHead) -> None:
    with deployment.database.begin() as uow:
        types = [event.type for event in uow.events.read(head.id)]
    assert types.count("ended") == 1
    assert types.count("action_proposed") == types.count("action_observed") == 3
    assert audited(deployment, head.id) == ["task_accepted", *["action"] * 3, "task_ended"]
    eventually(lambda: left(deployment, head.id) == NOTHING)


def audited(deployment: Deployment, task_id: str) -> list[str]:
    """The kinds of a task's entries, in a chain that holds."""
    with deployment.database.begin() as uow:
        assert uow.audit.verify("default").broken is None
        entries = [row.entry for row in uow.audit.all("default")]
    return [entry["kind"] for entry in entries if entry.get("task_id") == task_id]


NOTHING = {"open attempts": None, "outbox": 0, "trajectories": 1, "dead letters": 0, "deadline": None}


def left(deployment: Deployment, task_id: str) -> dict[str, object]:
    with deployment.database.begin() as uow:
        return {
            "open attempts": uow.attempts.open(task_id, "generate") or uow.attempts.open(task_id, "execute"),
            "outbox": uow.outbox.backlog().count,
            "trajectories": int(uow.trajectories.get(task_id) is not None),
            "dead letters": len(uow.dead_letters.list()),
            "deadline": uow.timers.next_in_s("deadline:"),
        }
