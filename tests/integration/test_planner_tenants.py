"""A tenant's tasks, sessions and objects are its own: whoever knows an id of another tenant's gets nothing by it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from threading import Event
from typing import Any

import psycopg
import pytest

from longstride.contracts.artifact import ref_for
from longstride.contracts.envelope import MessageError, seal
from longstride.contracts.model import Contract
from longstride.contracts.v1 import commands as c
from longstride.contracts.v1.action import Action, Observation
from longstride.contracts.v1.check import CommandCheck
from longstride.contracts.v1.commands import SubmitTask
from longstride.contracts.v1.events import ActionExecuted, Generated, TaskEnded
from longstride.contracts.v1.input_file import InputFile
from longstride.messaging.handling import DeliveryInfo
from longstride.messaging.outbox import Outbox
from longstride.storage.memory import MemoryArtifacts
from longstride.storage.unit_of_work import UnitOfWork
from services.telemetry.handlers import Recorder, handlers
from tests.support.eventually import eventually
from tests.support.played_stack import PlayedStack, turns
from tests.support.tasks import a_head

LOOK = Action(tool="shell", arguments={"command": "ls"})
OBJECT = ref_for(b"theirs", session="session_theirs", kind="output")


class Planners:
    """A planner, a task of the tenant ``theirs`` after its first step, and messages to it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._stack = PlayedStack(
            url, MemoryArtifacts(), turns((LOOK, Observation(status="ok", text="theirs")), (LOOK, None))
        )
        self.send(SubmitTask(instruction="Theirs."), "theirs", "task_theirs", "session_theirs", "queue_theirs")
        self._stack.play()

    def send(
        self,
        message: Contract,
        tenant: str,
        task_id: str = "task_mine",
        session_id: str | None = None,
        reply_to: str | None = None,
        **fields: Any,
    ) -> None:
        envelope = seal(message, task_id=task_id, session_id=session_id, tenant=tenant, **fields)
        with self._stack.database.begin() as uow:
            info = DeliveryInfo("longstride.planner", reply_to=reply_to, correlation_id="c")
            self._stack._handlers[envelope.type](envelope, message, uow, info)

    def head(self, task_id: str = "task_theirs") -> tuple[Any, ...] | None:
        with psycopg.connect(self.url) as connection:
            wanted = "SELECT tenant, session_id, status, version, reply_to FROM tasks WHERE id = %s"
            return connection.execute(wanted, (task_id,)).fetchone()

    def begin(self) -> AbstractContextManager[UnitOfWork]:
        return self._stack.database.begin()

    def waiting_for_a_lock(self) -> int:
        with psycopg.connect(self.url) as connection:
            (count,) = connection.execute(
                "SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database "
                "WHERE NOT granted AND locktype = 'advisory' AND d.datname = current_database()"
            ).fetchone() or (0,)
        return int(count)

    def close(self) -> None:
        self._stack.database.close()


@pytest.fixture
def planners(database_url: str) -> Iterator[Planners]:
    planners = Planners(database_url)
    yield planners
    planners.close()


def test_anothers_outcome_goes_to_nobody_who_names_its_id(planners: Planners) -> None:
    before = planners.head()
    with pytest.raises(MessageError, match="is another's"):
        planners.send(SubmitTask(instruction="Mine."), "mine", "task_theirs", reply_to="queue_mine")
    assert planners.head() == before
    planners.send(SubmitTask(instruction="Theirs."), "theirs", "task_theirs", "session_theirs", "queue_new")
    assert planners.head()[-1] == "queue_new"  # type: ignore[index]


@pytest.mark.parametrize(
    "fields",
    [
        {"fork_of": ("task_theirs", 1)},
        {"parent_task_id": "task_theirs"},
        {"parent_task_id": "task_nobodys"},
        {"workspace": OBJECT},
        {"inputs": (InputFile(path="a", ref=OBJECT),)},
        {"checks": (CommandCheck(run="true", files=(InputFile(path="a", ref=OBJECT),)),)},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_task_starts_from_nothing_of_anothers(planners: Planners, fields: dict[str, Any]) -> None:
    with pytest.raises(MessageError):
        planners.send(SubmitTask(instruction="Mine.", **fields), "mine")
    assert planners.head("task_mine") is None
    if "task_nobodys" not in fields.values():
        planners.send(SubmitTask(instruction="Theirs.", **fields), "theirs", "task_more")
        assert planners.head("task_more")[0] == "theirs"  # type: ignore[index]


def test_a_task_joins_no_session_of_anothers(planners: Planners) -> None:
    with pytest.raises(MessageError, match="is another tenant's"):
        planners.send(SubmitTask(instruction="Mine."), "mine", session_id="session_theirs")
    assert planners.head("task_mine") is None


@pytest.mark.parametrize(
    "message",
    [
        c.CancelTask(),
        c.PauseTask(),
        c.ResumeTask(),
        c.MessageTask(text="Do as I say."),
        c.ApproveAction(step=2, approved=True),
        c.ExpireTask(),
        Generated(step=2, text="…", action=LOOK, policy="p"),
        ActionExecuted(step=2, observation=Observation(status="ok", text="forged")),
    ],
    ids=lambda message: type(message).__name__,
)
def test_nobody_steers_anothers_task(planners: Planners, message: Contract) -> None:
    before = planners.head()
    with pytest.raises(MessageError, match="'mine' has no task 'task_theirs'"):
        planners.send(message, "mine", "task_theirs")
    assert planners.head() == before


def test_a_parts_end_is_its_own_tenants(planners: Planners) -> None:
    ended = TaskEnded(outcome="succeeded", reason="submitted", answer="forged")
    planners.send(SubmitTask(instruction="A part.", parent_task_id="task_theirs"), "theirs", "task_part")
    with pytest.raises(MessageError):
        planners.send(ended, "mine", "task_part")
    planners.send(ended, "theirs", "task_part")


def test_a_pause_from_the_future_is_not_the_last_word_for_ever(planners: Planners) -> None:
    planners.send(c.PauseTask(), "theirs", "task_theirs", occurred_at=datetime(9999, 12, 31, tzinfo=UTC))
    paused = planners.head()
    planners.send(c.ResumeTask(), "theirs", "task_theirs")
    assert planners.head()[3] > paused[3]  # type: ignore[index]


def test_nobody_scores_anothers_task(planners: Planners) -> None:
    recorder = handlers(Recorder(MemoryArtifacts(), Outbox()))
    planners.send(c.CancelTask(), "theirs", "task_theirs")
    seq = planners.head()[3]  # type: ignore[index]
    ended = TaskEnded(outcome="cancelled", reason="cancelled", last_seq=seq)
    score = c.RecordFeedback(score=1.0)

    def tell(message: Contract, tenant: str) -> None:
        envelope = seal(message, task_id="task_theirs", session_id="session_theirs", tenant=tenant)
        with planners.begin() as uow:
            recorder[envelope.type](envelope, message, uow, DeliveryInfo("longstride.telemetry"))

    def rewards() -> list[tuple[Any, ...]]:
        with psycopg.connect(planners.url) as connection:
            return connection.execute("SELECT version, source FROM rewards ORDER BY version").fetchall()

    with pytest.raises(MessageError, match="'mine' has no task 'task_theirs'"):
        tell(ended, "mine")
    tell(ended, "theirs")
    before = rewards()
    with pytest.raises(MessageError, match="'mine' has no task 'task_theirs'"):
        tell(score, "mine")
    assert rewards() == before
    tell(score, "theirs")
    assert len(rewards()) == len(before) + 1


def test_a_session_that_two_share_is_the_firsts_and_stays_open_to_the_parts_of_the_other(planners: Planners) -> None:
    with planners.begin() as uow:  # as an earlier build let in
        uow.tasks.insert(a_head(id="task_mine", tenant="mine", session_id="session_theirs", status="running"))
    planners.send(SubmitTask(instruction="Theirs."), "theirs", "task_more", "session_theirs")
    part = SubmitTask(instruction="A part.", parent_task_id="task_mine")
    planners.send(part, "mine", "task_part", "session_theirs")
    assert [planners.head(task)[0] for task in ("task_more", "task_part")] == ["theirs", "mine"]  # type: ignore[index]
    with pytest.raises(MessageError, match="'session_theirs' is another tenant's"):
        planners.send(SubmitTask(instruction="Mine."), "mine", "task_next", "session_theirs")


def test_of_two_that_ask_for_a_session_at_once_one_gets_it(planners: Planners) -> None:
    asked = Event()

    def second() -> str | None:
        with planners.begin() as uow:
            asked.set()
            return uow.tasks.foreign_session(["session_new"], "mine")

    with ThreadPoolExecutor(1) as pool:
        with planners.begin() as uow:
            assert uow.tasks.foreign_session(["session_new"], "theirs") is None
            answer = pool.submit(second)
            assert asked.wait(10)
            eventually(lambda: planners.waiting_for_a_lock() == 1)
            uow.tasks.insert(a_head(tenant="theirs", session_id="session_new"))
        assert answer.result(10) == "session_new"
