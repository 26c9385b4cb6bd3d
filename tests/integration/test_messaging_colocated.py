"""Commands that skip the broker lose nothing by it: the attempt's row, its lease and the reaper are the same."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from longstride.contracts.envelope import Envelope
from longstride.contracts.v1.commands import ExecuteAction
from longstride.messaging.backbone import Backbone
from longstride.messaging.colocated import ColocatedCommands, Lane
from longstride.messaging.commands import QueuedCommands
from longstride.messaging.dispatch import Dispatcher
from longstride.messaging.handling import DeliveryInfo
from longstride.messaging.lease import HeldLease
from longstride.messaging.reaper import Reaper
from longstride.messaging.work import Answer, Worker
from longstride.storage.unit_of_work import UnitOfWork
from tests.support.broker_semantics import depth
from tests.support.eventually import eventually
from tests.support.messaging_fixtures import *  # noqa: F403
from tests.support.messaging_fixtures import in_memory_broker, start_consumer, start_part
from tests.support.pocket_planner import PocketPlanner, answer, ended, history, submission

QUEUES = {"generate": "longstride.generate.fast", "execute": "longstride.execute"}
ANSWERS = "longstride.planner"


@pytest.fixture
def broker_url() -> Iterator[str]:
    """What is shown here is that it is not asked."""
    with in_memory_broker() as url:
        yield url


class Colocation:
    """A pocket planner with a worker in its own process, both also reachable through their queues."""

    def __init__(
        self,
        running: ExitStack,
        backbone: Backbone,
        work: Callable[..., Answer | None],
        *,
        steps: int = 1,
        slots: int = 1,
        phase: str = "generate",
        unsafe: Callable[[Any], bool] = lambda _message: False,
        taken: Callable[..., object] | None = None,
    ) -> None:
        commands = ColocatedCommands(backbone.leases, QueuedCommands(backbone.outbox), unsafe)
        self.backbone = backbone
        self.planner = PocketPlanner(backbone.outbox, phase, steps, commands=commands)
        table = self.planner.handlers()
        if taken is not None:
            table = {**table, "generated": taken(table["generated"])}
        self.dispatcher = Dispatcher("planner", table, backbone.database, backbone.outbox, first_retry_s=0.1)
        self.worker = Worker({"generate": work, "execute_action": work}, backbone.leases, backbone.database)
        self.lane = Lane(QUEUES[phase], self.worker, self.dispatcher.settle, slots)
        commands.open([self.lane])
        start_part(running, self.lane)
        start_consumer(running, backbone, ANSWERS, self.dispatcher)

    def submit(self) -> str:
        envelope = submission()
        with self.backbone.database.begin() as uow:
            self.backbone.outbox.post(uow, envelope)
        return str(envelope.task_id)

    def attempts(self) -> list[tuple[int, str]]:
        with self.backbone.database.engine.connect() as connection:
            rows = connection.exec_driver_sql("SELECT attempt, status FROM attempts ORDER BY step, attempt").all()
        return [(row.attempt, row.status) for row in rows]


def at_once(_envelope: Envelope, message: Any, _held: HeldLease) -> Answer:
    return Answer(answer(message))


def test_fifty_steps_pass_without_a_message(backbone: Backbone, running: ExitStack) -> None:
    here = Colocation(running, backbone, at_once, steps=50)
    task_id = here.submit()
    eventually(lambda: ended(backbone.database, task_id))
    assert [seen.get("step") for seen in history(backbone.database, task_id)] == [None, *range(1, 51)]
    assert here.attempts() == [(1, "settled")] * 50
    assert backbone.relay.counts.sent == 1, "the submission, and nothing else"
    assert backbone.leases.held == 0


def test_more_tasks_than_threads_take_turns(backbone: Backbone, running: ExitStack) -> None:
    order: list[str | None] = []

    def work(envelope: Envelope, message: Any, _held: HeldLease) -> Answer:
        order.append(envelope.task_id)
        all_in.wait(10)
        return Answer(answer(message))

    all_in = threading.Event()
    here = Colocation(running, backbone, work, steps=3)
    tasks = [here.submit() for _ in range(4)]
    eventually(lambda: len(here.attempts()) == 4)
    all_in.set()
    eventually(lambda: all(ended(backbone.database, task_id) for task_id in tasks))
    assert sorted(order[:4]) == sorted(order[4:8]) == sorted(order[8:]) == sorted(tasks)


def test_a_cancelled_task_stops_its_work_and_its_answer_is_thrown_away(backbone: Backbone, running: ExitStack) -> None:
    started, noticed = threading.Event(), threading.Event()

    def work(_envelope: Envelope, message: Any, held: HeldLease) -> Answer:
        started.set()
        assert held.lost.wait(10)
        noticed.set()
        return Answer(answer(message))

    here = Colocation(running, backbone, work)
    task_id = here.submit()
    assert started.wait(60)
    with backbone.database.begin() as uow:
        uow.attempts.abandon(task_id)
    assert noticed.wait(60)
    eventually(lambda: backbone.leases.held == 0)
    assert here.attempts() == [(1, "lost")]
    assert not ended(backbone.database, task_id)


def test_an_answer_that_comes_right_after_the_cancel_is_fenced_off(backbone: Backbone, running: ExitStack) -> None:
    def work(envelope: Envelope, message: Any, held: HeldLease) -> Answer:
        with backbone.database.begin() as uow:
            uow.attempts.abandon(str(envelope.task_id))
        assert not held.lost.is_set(), "no heartbeat has told it yet"
        return Answer(answer(message))

    here = Colocation(running, backbone, work)
    task_id = here.submit()
    eventually(lambda: here.attempts() == [(1, "lost")] and backbone.leases.held == 0)
    assert len(history(backbone.database, task_id)) == 1


def test_a_command_that_must_not_be_repeated_unseen_takes_its_queue(backbone: Backbone, running: ExitStack) -> None:
    here = Colocation(running, backbone, at_once, phase="execute", unsafe=lambda m: isinstance(m, ExecuteAction))
    here.submit()
    eventually(lambda: depth(backbone.bus, QUEUES["execute"]) == 1)
    assert here.attempts() == [(1, "dispatched")]


def test_work_that_fails_becomes_the_next_attempt_through_the_queue(backbone: Backbone, running: ExitStack) -> None:
    tries: list[int] = []

    def work(envelope: Envelope, message: Any, _held: HeldLease) -> Answer:
        tries.append(envelope.attempt)
        if envelope.attempt == 1:
            raise RuntimeError("broken once")
        return Answer(answer(message))

    here = Colocation(running, backbone, work)
    start_consumer(running, backbone, QUEUES["generate"], here.worker)
    start_part(running, reaper(backbone))
    task_id = here.submit()
    eventually(lambda: ended(backbone.database, task_id))
    assert tries == [1, 2]
    assert here.attempts() == [(1, "lost"), (2, "settled")]


def test_an_answer_whose_taker_fails_is_brought_again_by_the_queue(backbone: Backbone, running: ExitStack) -> None:
    failures: list[str] = []

    def failing_once(take: Callable[..., object]) -> Callable[..., object]:
        def taken(envelope: Envelope, message: Any, uow: UnitOfWork, delivery: DeliveryInfo) -> object:
            if not failures:
                failures.append(envelope.message_id)
                raise RuntimeError("broken once")
            return take(envelope, message, uow, delivery)

        return taken

    calls: list[int] = []

    def work(_envelope: Envelope, message: Any, _held: HeldLease) -> Answer:
        calls.append(message.step)
        return Answer(answer(message))

    here = Colocation(running, backbone, work, steps=2, taken=failing_once)
    task_id = here.submit()
    eventually(lambda: ended(backbone.database, task_id))
    assert calls == [1, 2], "its taker failed, so the work is not done again"
    assert here.attempts() == [(1, "settled"), (1, "settled")]


def test_what_waits_at_the_end_is_handed_back(backbone: Backbone, running: ExitStack) -> None:
    started, go_on = threading.Event(), threading.Event()

    def work(_envelope: Envelope, message: Any, _held: HeldLease) -> Answer:
        started.set()
        assert go_on.wait(10)
        return Answer(answer(message))

    here = Colocation(running, backbone, work)
    here.submit()
    assert started.wait(60)
    here.submit()
    eventually(lambda: backbone.leases.held == 2)
    here.lane.drain()
    go_on.set()
    eventually(lambda: here.lane.busy == 0)
    assert backbone.leases.release_all() == 1
    eventually(lambda: depth(backbone.bus, QUEUES["generate"]) == 1)
    assert sorted(here.attempts()) == [(1, "dispatched"), (1, "settled")]


def test_a_lane_that_drains_sends_new_commands_through_the_queue(backbone: Backbone, running: ExitStack) -> None:
    here = Colocation(running, backbone, at_once)
    here.lane.drain()
    here.submit()
    eventually(lambda: depth(backbone.bus, QUEUES["generate"]) == 1)


def test_a_process_that_dies_leaves_its_commands_to_the_next(backbone: Backbone, running: ExitStack) -> None:
    never = threading.Event()
    running.callback(never.set)

    def work(_envelope: Envelope, message: Any, _held: HeldLease) -> None:
        never.wait(30)

    here = Colocation(running, backbone, work)
    here.submit()
    here.submit()
    eventually(lambda: backbone.leases.held == 2)
    with backbone.database.begin() as uow:  # what the embedded stack's next life does first
        assert uow.attempts.forfeit(backbone.incarnation) == 2
    reaper(backbone).reap(3600, 3600)
    eventually(lambda: depth(backbone.bus, QUEUES["generate"]) == 2)
    assert sorted(here.attempts()) == [(1, "lost"), (1, "lost"), (2, "dispatched"), (2, "dispatched")]


def reaper(backbone: Backbone) -> Reaper:
    return Reaper(
        backbone.database, backbone.outbox, backbone.bus, backbone.leases, unsafe=lambda _: False, every_s=0.05
    )
