"""A delivery becomes one transaction, once; what cannot be handled is kept, and said."""

import json
import threading
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from longstride.contracts.envelope import MAX_BYTES, Envelope, MessageError, decode, seal
from longstride.contracts.topology import DEAD_LETTER_QUEUE
from longstride.contracts.v1.commands import CancelTask, RecordFeedback, SubmitTask
from longstride.messaging.backbone import Backbone
from longstride.messaging.dead_letters import CannotReplay, DeadLetterDrain, keep, replay
from longstride.messaging.dispatch import Dispatcher
from longstride.messaging.handling import DeliveryInfo
from longstride.messaging.outbox import Outbox
from longstride.messaging.outgoing import Outgoing
from longstride.messaging.timers import Timers, set_timer
from longstride.storage.dead_letters import DeadLetter
from longstride.storage.errors import StorageUnavailable, VersionConflict
from longstride.storage.unit_of_work import UnitOfWork
from tests.support.broker_semantics import declare, depth
from tests.support.eventually import eventually
from tests.support.inbox_of import InboxOf
from tests.support.messaging_fixtures import *  # noqa: F403
from tests.support.messaging_fixtures import start_consumer, start_part
from tests.support.pocket_planner import new_task

QUEUE = "longstride.telemetry"


def feedback(**fields: Any) -> Envelope:
    return seal(RecordFeedback(score=1.0), task_id="task_1", **fields)


def send(backbone: Backbone, body: bytes, queue: str = QUEUE, reply_to: str | None = None) -> None:
    message = Outgoing(body, queue, "msg-of-a-stranger", exchange="", reply_to=reply_to, correlation_id="c-1")
    assert backbone.bus.publish_all([message]) == [None]


class Handled:
    """A handler that counts, and does what the test says first."""

    def __init__(self, act: Any = lambda _times: None) -> None:
        self._act = act
        self.times = 0
        self.seen: list[tuple[Envelope, Any, DeliveryInfo]] = []

    def __call__(self, envelope: Envelope, message: Any, uow: UnitOfWork, delivery: DeliveryInfo) -> None:
        self.times += 1
        uow.tasks.insert(new_task(f"task-{self.times}"))  # rolled back with a failure
        self._act(self.times)
        self.seen.append((envelope, message, delivery))


def serve(backbone: Backbone, running: ExitStack, handler: Any, **options: Any) -> Dispatcher:
    handlers = {"record_feedback": handler, "submit_task": handler}
    options = {"first_retry_s": 0.05, **options}
    dispatcher = Dispatcher("telemetry", handlers, backbone.database, backbone.outbox, **options)
    start_consumer(running, backbone, QUEUE, dispatcher)
    start_part(running, Timers(backbone.database, backbone.outbox, every_s=0.02))
    return dispatcher


def letters(backbone: Backbone) -> list[DeadLetter]:
    with backbone.database.begin() as uow:
        return uow.dead_letters.list()


def tasks(backbone: Backbone) -> int:
    with backbone.database.engine.connect() as connection:
        return int(connection.exec_driver_sql("SELECT count(*) FROM tasks").scalar_one())


def test_a_message_is_handled_with_its_body_and_whom_to_answer(backbone: Backbone, running: ExitStack) -> None:
    handler = Handled()
    serve(backbone, running, handler)
    send(backbone, (envelope := feedback()).encode(), reply_to="back")
    ((seen, message, delivery),) = eventually(lambda: handler.seen)
    assert seen.encode() == envelope.encode()
    assert message == RecordFeedback(score=1.0)
    assert (delivery.reply_to, delivery.correlation_id, delivery.queue) == ("back", "c-1", QUEUE)


def test_a_duplicate_changes_nothing(backbone: Backbone, running: ExitStack) -> None:
    handler = Handled()
    serve(backbone, running, handler)
    body = feedback().encode()
    for _ in range(5):
        send(backbone, body)
    send(backbone, (last := feedback()).encode())
    eventually(lambda: handler.seen and handler.seen[-1][0].encode() == last.encode())
    assert handler.times == 2


def test_duplicates_at_the_same_time_change_nothing(backbone: Backbone, running: ExitStack) -> None:
    gate = threading.Barrier(2, timeout=0.5)

    def meet(_times: int) -> None:
        try:
            gate.wait()  # both would get here at once if the inbox let them
        except threading.BrokenBarrierError:
            return

    handler = Handled(meet)
    dispatcher = Dispatcher("telemetry", {"record_feedback": handler}, backbone.database, backbone.outbox)
    consumer = start_consumer(running, backbone, QUEUE, dispatcher, slots=2)
    body = feedback().encode()
    send(backbone, body)
    send(backbone, body)
    eventually(lambda: handler.seen and not consumer.busy and depth(backbone.bus, QUEUE) == 0)
    assert handler.times == 1


GOOD = json.loads(feedback().encode())
NONSENSE = {
    "not JSON": (b"hello", "not JSON"),
    "not text": (b"\xff\xfe\x00", "not JSON"),
    "an array": (b"[1, 2]", "expected a JSON object, got list"),
    "an unknown version": (json.dumps({**GOOD, "version": 7}).encode(), "unknown version 7"),
    "a missing field": (json.dumps({k: v for k, v in GOOD.items() if k != "message_id"}).encode(), "message_id"),
    "an unknown field": (json.dumps({**GOOD, "colour": "red"}).encode(), "colour"),
    "an unknown type": (json.dumps({**GOOD, "type": "fly"}).encode(), "unknown message type 'fly'"),
    "a bad body": (json.dumps({**GOOD, "body": {"score": 7}}).encode(), "score"),
    "oversized": (b'{"x": "' + b"x" * MAX_BYTES + b'"}', f"at most {MAX_BYTES}"),
}


def test_a_message_under_anothers_routing_key_is_kept(backbone: Backbone, running: ExitStack) -> None:
    """A broker lets its users publish by routing key: whoever may only submit must not be heard as anybody else."""
    handler = Handled()
    serve(backbone, running, handler)
    for key in ("record_feedback", "task_ended"):
        message = Outgoing(feedback().encode(), key, "msg-of-a-stranger")
        assert backbone.bus.publish_all([message]) == [None]
    (letter,) = eventually(lambda: letters(backbone))
    assert "routing key 'task_ended', not 'record_feedback'" in letter.reason
    eventually(lambda: len(handler.seen) == 1)


@pytest.mark.parametrize(("body", "reason"), NONSENSE.values(), ids=NONSENSE.keys())
def test_what_cannot_be_understood_is_kept_whole_with_the_reason(
    backbone: Backbone, running: ExitStack, body: bytes, reason: str
) -> None:
    handler = Handled()
    serve(backbone, running, handler)
    send(backbone, body)
    (letter,) = eventually(lambda: letters(backbone))
    assert letter.body == body
    assert reason in letter.reason
    assert letter.queue == QUEUE
    assert eventually(lambda: depth(backbone.bus, QUEUE) == 0)
    send(backbone, feedback().encode())
    eventually(lambda: handler.times == 1)


def test_a_message_for_another_service_is_kept(backbone: Backbone, running: ExitStack) -> None:
    serve(backbone, running, Handled())
    send(backbone, seal(CancelTask(), task_id="task_1").encode())
    (letter,) = eventually(lambda: letters(backbone))
    assert letter.reason == "telemetry does not handle 'cancel_task'"
    assert letter.type == "cancel_task"


@pytest.mark.parametrize("body", [b"hello", b"{}", seal(SubmitTask(instruction="x")).encode()[:-20]])
def test_a_stranger_who_waits_for_an_answer_gets_one(backbone: Backbone, running: ExitStack, body: bytes) -> None:
    serve(backbone, running, Handled())
    back, inbox = declare(backbone.bus), InboxOf()
    start_consumer(running, backbone, back, inbox)
    send(backbone, body, reply_to=back)
    (answer,) = eventually(lambda: inbox.deliveries)
    rejection = decode(answer.body)
    assert rejection.type == "task_rejected"
    assert answer.correlation_id == "c-1"
    (letter,) = letters(backbone)
    assert rejection.body["reason"] == letter.reason


def test_nonsense_found_by_the_handler_is_kept_at_once(backbone: Backbone, running: ExitStack) -> None:
    def refuse(_times: int) -> None:
        raise MessageError("there is no such step")

    handler = Handled(refuse)
    serve(backbone, running, handler)
    send(backbone, feedback().encode())
    (letter,) = eventually(lambda: letters(backbone))
    assert letter.reason == "there is no such step"
    assert handler.times == 1
    assert tasks(backbone) == 0


def test_a_failure_is_tried_again_and_knows_whom_to_answer(backbone: Backbone, running: ExitStack) -> None:
    def fail_twice(times: int) -> None:
        if times < 3:
            raise RuntimeError("not yet")

    handler = Handled(fail_twice)
    serve(backbone, running, handler)
    send(backbone, feedback().encode(), reply_to="back")
    ((_, _, delivery),) = eventually(lambda: handler.seen)
    assert handler.times == 3
    assert (delivery.reply_to, delivery.correlation_id) == ("back", "c-1")
    eventually(lambda: tasks(backbone) == 1)  # two were rolled back
    assert letters(backbone) == []


def test_a_poison_message_is_kept_after_five_failures(backbone: Backbone, running: ExitStack) -> None:
    def fail(_times: int) -> None:
        raise RuntimeError("never")

    handler = Handled(fail)
    serve(backbone, running, handler)
    send(backbone, (envelope := feedback()).encode())
    (letter,) = eventually(lambda: letters(backbone))
    assert handler.times == 5
    assert letter.message_id == envelope.message_id
    assert "failed 5 times" in letter.reason
    assert "RuntimeError: never" in letter.reason
    assert tasks(backbone) == 0


def test_a_lost_race_is_no_failure(backbone: Backbone, running: ExitStack) -> None:
    def lose_twice(times: int) -> None:
        if times < 3:
            raise VersionConflict

    handler = Handled(lose_twice)
    serve(backbone, running, handler, first_retry_s=3600)
    send(backbone, feedback().encode())
    eventually(lambda: handler.seen)
    assert handler.times == 3


def test_an_outage_is_waited_out_and_never_counted(backbone: Backbone, running: ExitStack) -> None:
    def away(times: int) -> None:
        if times < 5:
            raise StorageUnavailable("the store is away")

    handler = Handled(away)
    serve(backbone, running, handler, max_failures=1)
    send(backbone, feedback().encode())
    eventually(lambda: handler.seen)
    assert letters(backbone) == []


def test_a_stop_during_an_outage_gives_the_message_back(backbone: Backbone, running: ExitStack) -> None:
    def away(_times: int) -> None:
        raise StorageUnavailable("the store is away")

    handler = Handled(away)
    dispatcher = Dispatcher("telemetry", {"record_feedback": handler}, backbone.database, backbone.outbox)
    consumer = start_consumer(running, backbone, QUEUE, dispatcher)
    send(backbone, feedback().encode())
    eventually(lambda: handler.times)
    consumer.drain()
    dispatcher.stop()
    consumer.stop(5)
    assert eventually(lambda: depth(backbone.bus, QUEUE) == 1)


def test_a_dead_letter_is_replayed_once(backbone: Backbone, running: ExitStack) -> None:
    mended = threading.Event()

    def fail_until_mended(_times: int) -> None:
        if not mended.is_set():
            raise RuntimeError("broken")

    handler = Handled(fail_until_mended)
    serve(backbone, running, handler, max_failures=1)
    send(backbone, (envelope := feedback()).encode(), reply_to="back")
    (letter,) = eventually(lambda: letters(backbone))
    mended.set()
    with backbone.database.begin() as uow:
        replay(uow, backbone.outbox, letter.id)
    ((seen, _, delivery),) = eventually(lambda: handler.seen)
    assert seen.encode() == envelope.encode()
    assert (delivery.reply_to, delivery.correlation_id) == ("back", "c-1")
    assert letters(backbone) == []
    with pytest.raises(CannotReplay, match="was replayed at"), backbone.database.begin() as uow:
        replay(uow, backbone.outbox, letter.id)
    with pytest.raises(CannotReplay, match="no dead letter 999"), backbone.database.begin() as uow:
        replay(uow, backbone.outbox, 999)


def test_the_brokers_dead_letters_end_in_postgresql(backbone: Backbone, running: ExitStack) -> None:
    queue = declare(backbone.bus, delivery_limit=1)

    def die(_delivery: Any) -> None:
        raise RuntimeError("the handler itself is broken")

    start_consumer(running, backbone, queue, die)
    start_consumer(running, backbone, DEAD_LETTER_QUEUE, DeadLetterDrain(backbone.database))
    send(backbone, body := feedback().encode(), queue, reply_to="back")
    (letter,) = eventually(lambda: letters(backbone))
    assert (letter.queue, letter.body, letter.type) == (queue, body, "record_feedback")
    assert "delivery_limit" in letter.reason
    assert letter.headers["reply_to"] == "back"


def test_a_timer_that_holds_no_message_is_a_dead_letter_and_stops_no_other(
    backbone: Backbone, running: ExitStack
) -> None:
    handler = Handled()
    serve(backbone, running, handler)
    timers = start_part(running, Timers(backbone.database, backbone.outbox, every_s=0.02))
    now = datetime.now(UTC)
    with backbone.database.begin() as uow:
        uow.timers.set("strange", now - timedelta(seconds=1), "kombu", "record_feedback", "hello")
        set_timer(uow, "good", now, feedback())
    eventually(lambda: handler.seen)
    (letter,) = letters(backbone)
    assert "timer 'strange' sends no message" in letter.reason
    assert letter.body == b"hello"
    assert timers.failure is None


def test_a_schedule_sends_a_fresh_message_each_time(backbone: Backbone, running: ExitStack) -> None:
    handler = Handled()
    serve(backbone, running, handler)
    with backbone.database.begin() as uow:
        set_timer(uow, "often", datetime.now(UTC), feedback(), every_s=0.1)
    eventually(lambda: len(handler.seen) >= 3)
    ids = [envelope.message_id for envelope, _, _ in handler.seen]
    assert len(set(ids)) == len(ids)
    with backbone.database.begin() as uow:
        uow.timers.remove("often")


def test_a_timer_goes_off_once_in_many_processes(backbone: Backbone, running: ExitStack) -> None:
    handler = Handled()
    serve(backbone, running, handler)
    for _ in range(3):
        start_part(running, Timers(backbone.database, backbone.outbox, every_s=0.01))
    with backbone.database.begin() as uow:
        for number in range(30):
            set_timer(uow, f"timer-{number}", datetime.now(UTC) + timedelta(seconds=0.2), feedback())
    eventually(lambda: len(handler.seen) == 30)
    eventually(lambda: depth(backbone.bus, QUEUE) == 0)
    assert handler.times == 30


def test_a_letter_to_a_process_that_is_gone_is_not_sent_for_ever(backbone: Backbone) -> None:
    with backbone.database.begin() as uow:
        letter_id = keep(uow, "longstride.engine.gone", b'{"type": "policy_published"}', "not served", {})
    with backbone.database.begin() as uow:
        replay(uow, Outbox(), letter_id)
        (row,) = uow.outbox.claim(10)
    assert (row.carrier, row.routing_key) == ("reply", "longstride.engine.gone"), "the relay drops what nobody takes"
