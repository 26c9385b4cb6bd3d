"""Who is admitted though others cannot be: a queued task that no planner of this build can read is in nobody's way."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longstride.contracts.envelope import seal
from longstride.contracts.v1.commands import SubmitTask
from longstride.messaging.handling import DeliveryInfo
from longstride.storage.memory import MemoryArtifacts
from tests.support.played_stack import PlayedStack, turns
from tests.support.tasks import a_head

STORED = Path(__file__).parent.parent / "contracts" / "golden" / "stored" / "submitted.json"
UNREADABLE = {"at": "2026-01-01T00:00:00Z", "submit": {"instruction": "x", "of_a_newer_release": 1}, "messages": []}


@pytest.fixture
def stack(database_url: str) -> Iterator[PlayedStack]:
    stack = PlayedStack(database_url, MemoryArtifacts(), turns())
    yield stack
    stack.database.close()


def queued(stack: PlayedStack, submitted: dict[str, Any], **fields: Any) -> str:
    """A task that another build has stored."""
    head = a_head(version=1, **fields)
    with stack.database.begin() as uow:
        uow.tasks.insert(head)
        uow.events.append(head.id, 0, [("submitted", submitted)], "msg_1")
    return head.id


def submit(stack: PlayedStack, task_id: str, tenant: str = "default") -> None:
    message = SubmitTask(instruction="x")
    with stack.database.begin() as uow:
        info = DeliveryInfo("longstride.planner")
        stack._handlers["submit_task"](seal(message, task_id=task_id, tenant=tenant), message, uow, info)


def status(stack: PlayedStack, task_id: str) -> str:
    with stack.database.begin() as uow:
        head = uow.tasks.head(task_id)
    assert head is not None
    return head.status


def test_unreadable_tasks_keep_nobody_from_starting(stack: PlayedStack, caplog: pytest.LogCaptureFixture) -> None:
    bad = [queued(stack, UNREADABLE, priority=9) for _ in range(20)]  # more than there are slots
    held = queued(stack, UNREADABLE, concurrency_key="k", priority=9)
    good = queued(stack, json.loads(STORED.read_text()), concurrency_key="k")
    submit(stack, "task_same_tenant")
    submit(stack, "task_other_tenant", "acme")
    assert [status(stack, task_id) for task_id in (good, "task_same_tenant", "task_other_tenant")] == ["running"] * 3
    assert {status(stack, task_id) for task_id in (*bad, held)} == {"queued"}
    told = [record.getMessage() for record in caplog.records if "cannot be read" in record.getMessage()]
    assert {text.split()[2] for text in told} == {*bad, held}
    assert len(told) == len(bad) + 1, "once each"
