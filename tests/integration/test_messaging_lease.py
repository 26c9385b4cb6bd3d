"""A lease is kept by heartbeats that nothing delays, lost without argument, and brought back by the reaper."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from longstride.contracts.envelope import Envelope, decode
from longstride.contracts.v1.commands import ExecuteAction
from longstride.contracts.v1.events import ActionExecuted, Generated
from longstride.messaging import reaper as reaper_module
from longstride.messaging.backbone import Backbone
from longstride.messaging.dispatch import Dispatcher
from longstride.messaging.lease import HEARTBEAT_S, TTL_S, HeldLease, Leases
from longstride.messaging.reaper import VANISHED_S, Reaper
from longstride.messaging.work import Answer, Worker
from longstride.storage.errors import StorageFull, StorageUnavailable
from tests.support.broker_semantics import depth
from tests.support.eventually import eventually
from tests.support.inbox_of import InboxOf
from tests.support.messaging_fixtures import *  # noqa: F403
from tests.support.messaging_fixtures import in_memory_broker, start_backbone, start_consumer, start_part
from tests.support.pocket_planner import PocketPlanner, answer, ended, history, new_task, submission

GENERATE = "longstride.generate.fast"
ANSWERS = "longstride.planner"


@pytest.fixture
def broker_url() -> Iterator[str]:
    """Leases live in PostgreSQL: one broker is enough, and the fast one will do."""
    with in_memory_broker() as url:
        yield url


def dispatched(
    backbone: Backbone, phase: str = "generate", tool: str = "shell", send: bool = True, tenant: str = "default"
) -> Envelope:
    """A task that waits for the answer to its first command."""
    planner = PocketPlanner(backbone.outbox, phase, steps=1, tool=tool)
    envelope = submission()
    assert envelope.task_id is not None
    with backbone.database.begin() as uow:
        uow.tasks.insert(replace(new_task(envelope.task_id), tenant=tenant))
        if send:
            return planner.dispatch(envelope, uow, 1)
        command = envelope.follow(planner.command(1))
        wire = command.encode().decode()
        uow.attempts.dispatch(envelope.task_id, 1, phase, 1, command.message_id, wire)  # type: ignore[arg-type]
    return command


def attempts(backbone: Backbone) -> list[tuple[int, str]]:
    with backbone.database.engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT attempt, status FROM attempts ORDER BY attempt")
        return [(number, status) for number, status in rows]


def workers(backbone: Backbone) -> list[Any]:
    with backbone.database.begin() as uow:
        return uow.workers.all()


def abandon(backbone: Backbone, envelope: Envelope) -> None:
    assert envelope.task_id is not None
    with backbone.database.begin() as uow:
        uow.attempts.abandon(envelope.task_id)


def reaper(backbone: Backbone, **options: Any) -> Reaper:
    options = {"unsafe": lambda message: message.action.tool == "pay", "every_s": 0.05, "silence_s": 0.5, **options}
    return Reaper(backbone.database, backbone.outbox, backbone.bus, backbone.leases, **options)


def worker(backbone: Backbone, handler: Callable[[Envelope, Any, HeldLease], Answer | None], **options: Any) -> Worker:
    handlers = {"generate": handler, "execute_action": handler}
    return Worker(handlers, backbone.leases, backbone.database, **options)


def at_once(_envelope: Envelope, message: Any, _held: HeldLease) -> Answer:
    return Answer(answer(message))


def test_a_heartbeat_must_have_room_for_two_more() -> None:
    with pytest.raises(ValueError, match="a third"):
        Leases(*[None] * 3, "owner", "service", ttl_s=3, heartbeat_s=2)  # type: ignore[arg-type]


def test_a_command_is_answered_once_and_long_work_holds_no_message(backbone: Backbone, running: ExitStack) -> None:
    go, answers = threading.Event(), InboxOf()

    def work(_envelope: Envelope, message: Any, _held: HeldLease) -> Answer:
        go.wait(60)
        return Answer(answer(message))

    start_consumer(running, backbone, ANSWERS, answers)
    consumer = start_consumer(running, backbone, GENERATE, worker(backbone, work), hold_s=0.2)
    command = dispatched(backbone)
    eventually(lambda: attempts(backbone) == [(1, "leased")] and depth(backbone.bus, GENERATE) == 0)
    eventually(lambda: backbone.relay.in_flight == 0)
    assert consumer.busy, "still at work, and yet its row of the outbox went, for the message was taken off its queue"
    go.set()
    (delivery,) = eventually(lambda: answers.deliveries)
    reply = decode(delivery.body)
    assert (reply.type, reply.causation_id, reply.task_id) == ("generated", command.message_id, command.task_id)
    assert attempts(backbone) == [(1, "answered")]


def test_a_second_delivery_repeats_the_recorded_answer_and_not_the_work(backbone: Backbone, running: ExitStack) -> None:
    calls, answers = [], InboxOf()

    def work(_envelope: Envelope, message: Any, _held: HeldLease) -> Answer:
        calls.append(message)
        return Answer(answer(message))

    start_consumer(running, backbone, ANSWERS, answers)
    start_consumer(running, backbone, GENERATE, worker(backbone, work))
    command = dispatched(backbone)
    eventually(lambda: len(answers.bodies) == 1)
    backbone.bus.publish(command.encode(), "generate.fast", command.message_id)
    eventually(lambda: len(answers.bodies) == 2)
    first, second = (decode(body.encode()) for body in answers.bodies)
    assert first.model_dump() == second.model_dump()
    assert len(calls) == 1


def test_a_command_of_an_ended_task_is_dropped(backbone: Backbone, running: ExitStack) -> None:
    calls: list[object] = []
    command = dispatched(backbone, send=False)
    abandon(backbone, command)
    consumer = start_consumer(running, backbone, GENERATE, worker(backbone, lambda *args: calls.append(args)))
    backbone.bus.publish(command.encode(), "generate.fast", command.message_id)
    eventually(lambda: depth(backbone.bus, GENERATE) == 0 and not consumer.busy)
    assert calls == []


def test_a_cancelled_task_stops_its_work_within_a_heartbeat(backbone: Backbone, running: ExitStack) -> None:
    started, noticed, answers = threading.Event(), [], InboxOf()

    def work(_envelope: Envelope, message: Any, held: HeldLease) -> Answer | None:
        started.set()
        held.lost.wait(10)
        noticed.append(time.monotonic())
        return Answer(answer(message))  # too late: it must not arrive

    start_consumer(running, backbone, ANSWERS, answers)
    consumer = start_consumer(running, backbone, GENERATE, worker(backbone, work))
    command = dispatched(backbone)
    started.wait(60)
    cancelled = time.monotonic()
    abandon(backbone, command)
    eventually(lambda: noticed and not consumer.busy)
    assert noticed[0] - cancelled < 0.3 + 0.7, "a heartbeat is 0.3 s; the rest is for a busy machine"
    assert answers.bodies == []
    assert attempts(backbone) == [(1, "lost")]


def test_a_dead_workers_command_goes_to_another_as_the_next_attempt(backbone: Backbone, running: ExitStack) -> None:
    answers, seen = InboxOf(), []
    command = dispatched(backbone, send=False)
    with backbone.database.begin() as uow:
        uow.attempts.claim(command.message_id, "dead-worker", ttl_s=0.3)  # claims, and is never heard of again

    def work(envelope: Envelope, message: Any, _held: HeldLease) -> Answer:
        seen.append(envelope)
        return Answer(answer(message))

    start_consumer(running, backbone, ANSWERS, answers)
    start_consumer(running, backbone, GENERATE, worker(backbone, work))
    start_part(running, reaper(backbone))
    (delivery,) = eventually(lambda: answers.deliveries)
    (again,) = seen
    assert again.attempt == 2
    assert again.message_id != command.message_id
    assert again.body == command.body
    assert decode(delivery.body).attempt == 2
    eventually(lambda: attempts(backbone) == [(1, "lost"), (2, "answered")])


def test_a_hung_worker_that_comes_to_is_fenced_off(backbone: Backbone, running: ExitStack) -> None:
    hung, go, answers = threading.Event(), threading.Event(), InboxOf()

    def work(envelope: Envelope, message: Any, held: HeldLease) -> Answer:
        if envelope.attempt == 1:
            with backbone.leases._lock:  # no heartbeat gets through: the process hangs
                backbone.leases._held.clear()
            hung.set()
            go.wait(60)
            return Answer(Generated(step=1, text="from the grave", policy="scripted"))
        return Answer(Generated(step=1, text="alive", policy="scripted"))

    start_consumer(running, backbone, ANSWERS, answers)
    start_consumer(running, backbone, GENERATE, worker(backbone, work), slots=2)
    start_part(running, reaper(backbone))
    dispatched(backbone)
    hung.wait(10)
    eventually(lambda: attempts(backbone)[-1] == (2, "answered"))
    go.set()
    eventually(lambda: answers.bodies)
    assert [decode(body.encode()).body["text"] for body in answers.bodies] == ["alive"]


def test_a_failing_handler_is_tried_again_and_then_given_up(backbone: Backbone, running: ExitStack) -> None:
    tries, answers = [], InboxOf()

    def work(envelope: Envelope, _message: Any, _held: HeldLease) -> Answer:
        tries.append(envelope.attempt)
        raise RuntimeError("a bug")

    start_consumer(running, backbone, ANSWERS, answers)
    start_consumer(running, backbone, GENERATE, worker(backbone, work))
    start_part(running, reaper(backbone, max_attempts=3))
    dispatched(backbone)
    (delivery,) = eventually(lambda: answers.deliveries)
    message = decode(delivery.body).message()
    assert isinstance(message, Generated)
    assert message.error is not None
    assert message.error.startswith("FAILED_POISON: 3 ")
    assert tries == [1, 2, 3]


def test_an_interrupted_unsafe_tool_is_for_a_person_to_decide(backbone: Backbone, running: ExitStack) -> None:
    answers = InboxOf()
    command = dispatched(backbone, "execute", tool="pay", send=False)
    with backbone.database.begin() as uow:
        uow.attempts.claim(command.message_id, "dead-worker", ttl_s=0.1)
    start_consumer(running, backbone, ANSWERS, answers)
    start_part(running, reaper(backbone))
    (delivery,) = eventually(lambda: answers.deliveries)
    message = decode(delivery.body).message()
    assert isinstance(message, ActionExecuted)
    assert message.needs_review
    assert attempts(backbone) == [(1, "lost")]


def test_an_interrupted_safe_tool_is_run_again(backbone: Backbone, running: ExitStack) -> None:
    command = dispatched(backbone, "execute", send=False)
    with backbone.database.begin() as uow:
        uow.attempts.claim(command.message_id, "dead-worker", ttl_s=0.1)
    start_part(running, reaper(backbone))
    eventually(lambda: attempts(backbone) == [(1, "lost"), (2, "dispatched")])


def test_a_lost_command_is_sent_again_once_its_queue_is_empty(backbone: Backbone, running: ExitStack) -> None:
    answers = InboxOf()
    dispatched(backbone, send=False)  # its message is nowhere
    start_consumer(running, backbone, ANSWERS, answers)
    start_consumer(running, backbone, GENERATE, worker(backbone, at_once))
    start_part(running, reaper(backbone))
    eventually(lambda: answers.bodies)
    assert attempts(backbone) == [(1, "answered")]


def test_a_command_that_waits_in_its_queue_is_left_alone(backbone: Backbone, running: ExitStack) -> None:
    dispatched(backbone)
    eventually(lambda: depth(backbone.bus, GENERATE) == 1)
    watch = start_part(running, reaper(backbone, silence_s=0.1))
    eventually(lambda: watch._somebody_is_silent())
    time_for_three_rounds = time.monotonic() + 0.5
    eventually(lambda: time.monotonic() > time_for_three_rounds)
    assert depth(backbone.bus, GENERATE) == 1


def test_a_stored_command_of_another_version_fails_and_stops_no_other(backbone: Backbone, running: ExitStack) -> None:
    answers = InboxOf()
    strange = dispatched(backbone, "execute", send=False, tenant="acme")
    good = dispatched(backbone, "execute", send=False)
    with backbone.database.begin() as uow:
        for command in (strange, good):
            uow.attempts.claim(command.message_id, "dead-worker", ttl_s=0.1)
    with backbone.database.engine.begin() as connection:
        set_version = "UPDATE attempts SET command = jsonb_set(command, '{version}', '9') WHERE message_id = %s"
        connection.exec_driver_sql(set_version, (strange.message_id,))
    start_consumer(running, backbone, ANSWERS, answers)
    watch = start_part(running, reaper(backbone))
    (delivery,) = eventually(lambda: answers.deliveries)
    envelope = decode(delivery.body)
    message = envelope.message()
    assert (envelope.task_id, envelope.session_id, envelope.tenant) == (strange.task_id, "session_1", "acme")
    assert isinstance(message, ActionExecuted)
    assert message.error is not None
    assert "cannot be read by this build" in message.error
    eventually(lambda: (2, "dispatched") in attempts(backbone))
    assert watch.failure is None


def test_an_answer_that_the_planner_never_got_is_sent_again(backbone: Backbone, running: ExitStack) -> None:
    answers = InboxOf()
    command = dispatched(backbone, send=False)
    with backbone.database.begin() as uow:
        lease = uow.attempts.claim(command.message_id, "worker", ttl_s=10)
        lost = command.follow(answer(command.message()))
        uow.attempts.answer(lease, lost.model_dump(mode="json"))  # type: ignore[arg-type]
    start_consumer(running, backbone, ANSWERS, answers)
    start_part(running, reaper(backbone))
    (delivery,) = eventually(lambda: answers.deliveries)
    assert decode(delivery.body).model_dump() == lost.model_dump()


def test_an_outage_of_the_store_is_no_attempt(backbone: Backbone, running: ExitStack) -> None:
    tries: list[int] = []

    def work(_envelope: Envelope, message: Any, _held: HeldLease) -> Answer:
        tries.append(1)
        if len(tries) < 3:
            raise StorageUnavailable("away")
        return Answer(answer(message))

    start_consumer(running, backbone, GENERATE, worker(backbone, work))
    dispatched(backbone)
    eventually(lambda: attempts(backbone) == [(1, "answered")])
    assert len(tries) == 3


def test_what_a_task_waits_for_can_be_seen_while_it_waits(backbone: Backbone, running: ExitStack) -> None:
    full = threading.Event()
    full.set()

    def work(_envelope: Envelope, message: Any, _held: HeldLease) -> Answer:
        if full.is_set():
            raise StorageFull("the artifact folder is full")
        return Answer(answer(message))

    def seen() -> str | None:
        assert command.task_id is not None
        with backbone.database.begin() as uow:
            found = uow.attempts.hindrance(command.task_id)
        return found and found.reason

    start_consumer(running, backbone, GENERATE, worker(backbone, work))
    command = dispatched(backbone)
    eventually(lambda: seen() == "the artifact folder is full")
    full.clear()
    eventually(lambda: attempts(backbone) == [(1, "answered")])
    assert seen() is None


def test_an_unsafe_tool_is_not_run_again_after_an_outage(backbone: Backbone, running: ExitStack) -> None:
    tries, answers = [], InboxOf()

    def work(_envelope: Envelope, _message: Any, _held: HeldLease) -> Answer:
        tries.append(1)
        raise StorageUnavailable("away, after the money was sent")

    unsafe = lambda message: isinstance(message, ExecuteAction) and message.action.tool == "pay"  # noqa: E731
    start_consumer(running, backbone, ANSWERS, answers)
    hand = worker(backbone, work, unsafe=unsafe)
    command = dispatched(backbone, "execute", tool="pay", send=False)
    start_part(running, reaper(backbone))
    assert hand.carry_out(command, lambda: None)
    (delivery,) = eventually(lambda: answers.deliveries)
    message = decode(delivery.body).message()
    assert isinstance(message, ActionExecuted)
    assert message.needs_review
    assert tries == [1]


def test_a_released_command_is_taken_by_another_at_once_as_the_same_attempt(
    database_url: str, broker_url: str, running: ExitStack
) -> None:
    leaving = start_backbone(running, database_url, broker_url, lease_ttl_s=3600)
    staying = start_backbone(running, database_url, broker_url)
    started, answers = threading.Event(), InboxOf()

    def never(_envelope: Envelope, _message: Any, held: HeldLease) -> None:
        started.set()
        held.lost.wait(10)

    start_consumer(running, staying, ANSWERS, answers)
    first = start_consumer(running, leaving, GENERATE, worker(leaving, never))
    dispatched(leaving)
    assert started.wait(60)
    first.drain()
    assert leaving.leases.release_all() == 1
    start_consumer(running, staying, GENERATE, worker(staying, at_once))
    eventually(lambda: answers.bodies)
    assert attempts(staying) == [(1, "answered")]


def test_a_lease_is_given_up_when_the_database_is_out_of_reach(
    database_url: str, broker_url: str, running: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = start_backbone(running, database_url, broker_url)
    command = dispatched(backbone, send=False)
    hung = threading.Event()
    running.callback(hung.set)
    with backbone.leases.hold(command) as held:
        assert held is not None
        # Not an error but silence, as on a broken network: the heartbeat's statement never returns.
        monkeypatch.setattr(backbone.heartbeat_database, "begin", lambda **_: hung.wait(30))
        begun = time.monotonic()
        assert held.lost.wait(10)
        assert 1.0 < time.monotonic() - begun < 3.5, "the lease lives 1.5 s after its last heartbeat"
        monkeypatch.undo()
        hung.set()


def hog() -> None:
    """Pure Python: takes the interpreter lock again as soon as it has given it up."""
    end = time.monotonic() + 6
    while time.monotonic() < end:
        sum(range(1000))


def hold_the_lock() -> None:
    """A call into C that does not give the interpreter lock back for a second and more, again and again."""
    end = time.monotonic() + 6
    number = 3**400_000
    while time.monotonic() < end:
        str(number)[:10]


@pytest.fixture
def any_digits() -> Iterator[None]:
    """Lets integers of any length be written. The limit is the interpreter's, so no thread may set it for itself."""
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    yield
    sys.set_int_max_str_digits(limit)


@pytest.mark.usefixtures("any_digits")
@pytest.mark.parametrize("step", [hog, hold_the_lock])
def test_no_step_makes_its_process_look_dead(
    database_url: str, broker_url: str, running: ExitStack, step: Callable[[], None]
) -> None:
    """Twenty leases over the worst kinds of work, at the default times: not one may be thought dead."""
    backbone = start_backbone(running, database_url, broker_url, lease_ttl_s=TTL_S, heartbeat_s=HEARTBEAT_S)
    with ExitStack() as leases:
        held = [leases.enter_context(backbone.leases.hold(dispatched(backbone, send=False))) for _ in range(20)]
        assert all(lease is not None for lease in held)
        threads = [threading.Thread(target=step) for _ in range(3)]
        for thread in threads:
            thread.start()
        dead = 0
        while any(thread.is_alive() for thread in threads):
            with backbone.database.begin() as uow:
                dead += len(uow.attempts.expired(100, 3600, 3600)) + len(uow.workers.vanished(VANISHED_S))
            threads[0].join(0.2)
        for thread in threads:
            thread.join()
        assert dead == 0
        assert not any(lease.lost.is_set() for lease in held if lease is not None)


SLEEPER = """
import sys, time
from longstride.contracts.envelope import Envelope
from longstride.messaging.backbone import Backbone
backbone = Backbone("doomed", sys.argv[1], "memory://doomed")
backbone.leases.start()
with backbone.leases.hold(Envelope.model_validate_json(sys.argv[2])) as held:
    print(backbone.incarnation if held else "refused", flush=True)
    time.sleep(60)
"""


def test_a_killed_process_is_noticed_in_seconds(backbone: Backbone, running: ExitStack) -> None:
    command = dispatched(backbone, send=False)
    doomed = subprocess.Popen(
        [sys.executable, "-c", SLEEPER, backbone.database.url.render_as_string(False), command.encode().decode()],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert doomed.stdout is not None
    with doomed, doomed.stdout:
        incarnation = doomed.stdout.readline().strip()

        def vanished() -> list[str]:
            with backbone.database.begin() as uow:
                return [worker.incarnation for worker in uow.workers.vanished(VANISHED_S)]

        eventually(lambda: incarnation in [worker.incarnation for worker in workers(backbone)])
        assert vanished() == []
        doomed.send_signal(signal.SIGSTOP)  # it hangs: that alone is not its death
        beyond = time.monotonic() + VANISHED_S + 0.5
        eventually(lambda: time.monotonic() > beyond)
        assert vanished() == []
        doomed.kill()
        killed = time.monotonic()
        eventually(lambda: vanished() == [incarnation])
        assert time.monotonic() - killed < 2, "it had been silent for long enough before"


def test_the_dead_are_not_counted_right_after_an_outage(
    backbone: Backbone, running: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = dispatched(backbone, send=False)
    with backbone.database.begin() as uow:
        uow.attempts.claim(command.message_id, "other", ttl_s=3600)
        uow.workers.beat("other", "test")  # it beats no more, and has no connection
    monkeypatch.setattr(reaper_module, "VANISHED_S", 0.2)
    start_part(running, reaper(backbone))
    later = time.monotonic() + 1
    eventually(lambda: time.monotonic() > later)
    assert attempts(backbone) == [(1, "leased")], "our own connection is too young to judge by"
    monkeypatch.setattr(reaper_module, "STEADY_S", 0.5)
    eventually(lambda: attempts(backbone) == [(1, "lost"), (2, "dispatched")])


def test_fifty_steps_go_by(backbone: Backbone, running: ExitStack) -> None:
    planner = PocketPlanner(backbone.outbox, "generate", steps=50)
    dispatcher = Dispatcher("planner", planner.handlers(), backbone.database, backbone.outbox)
    start_consumer(running, backbone, ANSWERS, dispatcher)
    start_consumer(running, backbone, GENERATE, worker(backbone, at_once))
    envelope = submission()
    assert envelope.task_id is not None
    with backbone.database.begin() as uow:
        backbone.outbox.post(uow, envelope)
    eventually(lambda: ended(backbone.database, str(envelope.task_id)))
    assert [seen.get("step") for seen in history(backbone.database, envelope.task_id)] == [None, *range(1, 51)]
    with backbone.database.engine.connect() as connection:
        (settled,) = connection.exec_driver_sql("SELECT DISTINCT status FROM attempts").all()
    assert settled == ("settled",)


def test_a_heartbeat_says_that_the_process_lives(backbone: Backbone) -> None:
    eventually(lambda: [worker.incarnation for worker in workers(backbone)] == [backbone.incarnation])
    backbone.leases.stop(5)
    assert workers(backbone) == []
