"""What a broker promises us: the tests that RabbitMQ and the broker in memory must both pass.

A module that imports them gives the fixtures `bus` (declared and connected) and `break_connections`, which cuts every
client's connection and lets new ones through.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import pytest

from longstride.contracts.topology import DEAD_LETTER_QUEUE
from longstride.messaging.bus import Bus
from longstride.messaging.consumer import Consumer
from longstride.messaging.declaration import work_queue_arguments
from longstride.messaging.delivery import Delivery
from longstride.messaging.errors import BusUnavailable, Refused, Unroutable, UnsuitableBroker
from longstride.messaging.outgoing import Outgoing, to_exchange, to_queue
from longstride.messaging.queue_depth import QueueDepth
from longstride.messaging.source import Source
from tests.support.eventually import eventually
from tests.support.inbox_of import InboxOf


def declare(bus: Bus, queue: str | None = None, **changes: Any) -> str:
    """A work queue of the test's own."""
    name = queue or f"test.{uuid4().hex}"
    arguments = {**work_queue_arguments(), **{f"x-{key.replace('_', '-')}": value for key, value in changes.items()}}
    link = bus.link()
    try:
        channel = link.channel()
        with link.held():
            channel.queue_declare(name, durable=True, auto_delete=False, arguments=arguments)
    finally:
        link.close()
    return name


def depth(bus: Bus, queue: str) -> int:
    probe = QueueDepth(bus, queue)
    try:
        return probe()
    finally:
        probe.close()


def put(bus: Bus, queue: str, *bodies: str) -> None:
    errors = bus.publish_all([to_queue(body.encode(), queue, f"msg-{body}") for body in bodies])
    assert errors == [None] * len(bodies)


@pytest.fixture
def consume(bus: Bus) -> Iterator[Callable[..., Consumer]]:
    """Start a consumer that is stopped with the test."""
    with ExitStack() as stack:

        def start(source: Source | str, handle: Callable[[Delivery], object], **options: Any) -> Consumer:
            consumer = Consumer(bus, source, handle, **options)
            consumer.start()
            stack.callback(consumer.stop, 5.0)
            assert consumer.wait_connected(10)
            return consumer

        yield start


def test_declaring_again_changes_nothing(bus: Bus) -> None:
    bus.declare()
    bus.declare()


def test_a_queue_with_other_properties_is_refused_by_name(bus: Bus) -> None:
    queue = declare(bus, max_length=7)
    with pytest.raises(BusUnavailable, match=f"PRECONDITION_FAILED.*{queue}"):
        declare(bus, queue, max_length=8)


@pytest.mark.parametrize(
    ("key", "queue"),
    [
        ("submit_task", "longstride.planner"),
        ("generate.fast", "longstride.generate.fast"),
        ("generate.deep", "longstride.generate.deep"),
        ("record_feedback", "longstride.telemetry"),
    ],
)
def test_a_routing_key_leads_to_its_queue_alone(bus: Bus, consume: Any, key: str, queue: str) -> None:
    inboxes = {
        name: InboxOf() for name in ("longstride.planner", "longstride.generate.fast", "longstride.generate.deep")
    }
    inboxes["longstride.telemetry"] = InboxOf()
    for name, inbox in inboxes.items():
        consume(name, inbox)
    bus.publish(b"{}", key, "msg-1")
    eventually(lambda: inboxes[queue].deliveries)
    assert [name for name, inbox in inboxes.items() if inbox.deliveries] == [queue]


def test_an_event_reaches_every_queue_that_wants_it(bus: Bus, consume: Any) -> None:
    planner, telemetry = InboxOf(), InboxOf()
    consume("longstride.planner", planner)
    consume("longstride.telemetry", telemetry)
    bus.publish(b"over", "task_ended", "msg-1")
    eventually(lambda: planner.bodies == telemetry.bodies == ["over"])


def test_what_is_published_arrives_whole(bus: Bus, consume: Any) -> None:
    queue, inbox = declare(bus), InboxOf()
    consume(queue, inbox)
    message = Outgoing(
        "Größe ✓".encode(),
        queue,
        "msg-1",
        exchange="",
        reply_to="back",
        correlation_id="c-1",
        headers={"id": "x", "retries": 0},
    )
    assert bus.publish_all([message]) == [None]
    (delivery,) = eventually(lambda: inbox.deliveries)
    assert delivery.body == "Größe ✓".encode()
    assert (delivery.message_id, delivery.reply_to, delivery.correlation_id) == ("msg-1", "back", "c-1")
    assert {"id": "x", "retries": 0}.items() <= delivery.headers.items()
    assert not delivery.redelivered


def test_a_message_that_nobody_wants_comes_back(bus: Bus) -> None:
    with pytest.raises(Unroutable, match=r"msg-1.*no_such_type"):
        bus.publish(b"{}", "no_such_type", "msg-1")
    with pytest.raises(Unroutable, match="gone"):
        bus.publish_reply("gone", b"{}", "msg-2")


def test_each_message_of_a_batch_has_its_own_answer(bus: Bus) -> None:
    queue = declare(bus)
    batch = [to_queue(b"1", queue, "a"), to_exchange(b"2", "nowhere", "b"), to_queue(b"3", queue, "c")]
    first, second, third = bus.publish_all(batch)
    assert (first, third) == (None, None)
    assert isinstance(second, Unroutable)
    assert depth(bus, queue) == 2


def test_a_full_queue_refuses_rather_than_drops(bus: Bus) -> None:
    queue = declare(bus, max_length=3)
    answers = [bus.publish_all([to_queue(b"x", queue, f"msg-{i}")])[0] for i in range(12)]
    refused = [answer for answer in answers if answer is not None]
    assert refused, "a quorum queue may take a few more than its limit, but not twelve for three"
    assert all(isinstance(answer, Refused) for answer in refused)
    eventually(lambda: depth(bus, queue) == 12 - len(refused))


def test_publishing_without_a_connection_says_so() -> None:
    with pytest.raises(BusUnavailable):
        Bus("amqp://nobody:secret@127.0.0.1:1/").publish(b"{}", "x", "msg-1")


def test_a_password_is_not_in_the_error() -> None:
    with pytest.raises(BusUnavailable) as caught:
        Bus("amqp://nobody:secret@127.0.0.1:1/").publish(b"{}", "x", "msg-1")
    assert "secret" not in str(caught.value)


def test_many_threads_publish_at_once(bus: Bus, consume: Any) -> None:
    queue, inbox = declare(bus), InboxOf()
    consume(queue, inbox, slots=2)

    def publish(name: int) -> None:
        for i in range(30):
            put(bus, queue, f"{name}-{i}")

    threads = [threading.Thread(target=publish, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: len(inbox.bodies) == 180)
    assert sorted(inbox.bodies) == sorted(f"{name}-{i}" for name in range(6) for i in range(30))


def test_one_slot_starts_messages_in_order(bus: Bus, consume: Any) -> None:
    queue, inbox = declare(bus), InboxOf()
    put(bus, queue, *map(str, range(50)))
    consume(queue, inbox)
    eventually(lambda: len(inbox.bodies) == 50)
    assert inbox.bodies == [str(i) for i in range(50)]


def test_a_message_is_acknowledged_after_its_handler(bus: Bus, consume: Any) -> None:
    queue, go = declare(bus), threading.Event()
    first = consume(queue, InboxOf(lambda _: go.wait(60)))
    put(bus, queue, "x")
    eventually(lambda: first.busy)
    first.close()  # the handler is still at work: nothing was acknowledged
    second = InboxOf()
    consume(queue, second)
    (delivery,) = eventually(lambda: second.deliveries)
    assert delivery.redelivered
    go.set()


def test_a_handled_message_is_gone(bus: Bus, consume: Any) -> None:
    queue, inbox = declare(bus), InboxOf()
    first = consume(queue, inbox)
    put(bus, queue, "x")
    eventually(lambda: inbox.deliveries and not first.busy)
    first.stop(5)
    again = InboxOf()
    consume(queue, again)
    put(bus, queue, "y")
    eventually(lambda: again.deliveries)
    assert again.bodies == ["y"]


def test_a_message_that_kills_its_handlers_is_a_dead_letter(bus: Bus, consume: Any) -> None:
    queue, dead = declare(bus, delivery_limit=2), InboxOf()

    def die(_: Delivery) -> None:
        raise RuntimeError("no")

    inbox = InboxOf(die)
    consume(DEAD_LETTER_QUEUE, dead)
    consume(queue, inbox)
    put(bus, queue, "poison")
    eventually(lambda: dead.deliveries)
    assert inbox.bodies == ["poison"] * 3, "one delivery and two redeliveries"
    assert [delivery.redelivered for delivery in inbox.deliveries] == [False, True, True]
    assert dead.bodies == ["poison"]
    assert dead.deliveries[0].headers["x-first-death-queue"] == queue
    assert dead.deliveries[0].headers["x-first-death-reason"] == "delivery_limit"


def test_no_more_is_taken_than_there_are_slots(bus: Bus, consume: Any) -> None:
    queue, go = declare(bus), threading.Event()
    inbox = InboxOf(lambda _: go.wait(60))
    put(bus, queue, *"abcde")
    consume(queue, inbox, slots=2)
    eventually(lambda: inbox.at_work == 2)
    assert eventually(lambda: depth(bus, queue) == 3)
    go.set()
    eventually(lambda: sorted(inbox.bodies) == list("abcde"))


def test_long_work_keeps_no_message_from_others(bus: Bus, consume: Any) -> None:
    queue, go = declare(bus), threading.Event()

    def work(delivery: Delivery) -> None:
        delivery.acknowledge()
        go.wait(60)

    busy, free = InboxOf(work), InboxOf()
    first = consume(queue, busy, hold_s=0.3)
    put(bus, queue, "long", "waits")
    eventually(lambda: busy.at_work == 1 and busy.deliveries[0].settled)
    assert first.busy, "its message is off the queue before its end"
    assert depth(bus, queue) == 1, "and none was taken that it has no slot for"
    second = consume(queue, free)
    eventually(lambda: free.bodies == ["waits"])
    assert not free.deliveries[0].redelivered
    second.stop(5)
    go.set()
    eventually(lambda: not first.busy)
    put(bus, queue, "next")
    eventually(lambda: busy.bodies == ["long", "next"])


def test_a_dead_letter_stays_until_it_is_taken(bus: Bus, consume: Any) -> None:
    queue = declare(bus, delivery_limit=0)

    def die(_: Delivery) -> None:
        raise RuntimeError("no")

    once = consume(queue, InboxOf(die))
    put(bus, queue, "poison")
    eventually(lambda: depth(bus, DEAD_LETTER_QUEUE) == 1)
    once.stop(5)
    refusing = InboxOf(lambda delivery: delivery.requeue())
    stubborn = consume(DEAD_LETTER_QUEUE, refusing)
    eventually(lambda: len(refusing.bodies) > 30)  # RabbitMQ 4 drops it after 20 where no limit is set
    stubborn.stop(5)
    taking = InboxOf()
    consume(DEAD_LETTER_QUEUE, taking)
    eventually(lambda: taking.bodies == ["poison"])


def test_stopping_finishes_what_was_started_and_leaves_the_rest(bus: Bus, consume: Any) -> None:
    queue, go = declare(bus), threading.Event()
    inbox = InboxOf(lambda _: go.wait(60))
    put(bus, queue, *"abc")
    consumer = consume(queue, inbox)
    eventually(lambda: inbox.at_work == 1)
    stopper = threading.Thread(target=consumer.stop, args=(10,))
    stopper.start()
    go.set()
    stopper.join()
    assert inbox.bodies == ["a"]
    eventually(lambda: depth(bus, queue) == 2)


def test_a_consumer_survives_a_broken_connection(bus: Bus, consume: Any, break_connections: Any) -> None:
    queue, inbox, connects = declare(bus), InboxOf(), []
    consume(queue, inbox, on_connect=lambda: connects.append(1))
    put(bus, queue, "before")
    eventually(lambda: inbox.bodies == ["before"])
    break_connections()
    eventually(lambda: len(connects) == 2)
    eventually(lambda: _put_again(bus, queue, "after"))
    eventually(lambda: "after" in inbox.bodies)


def test_a_message_in_hand_comes_again_after_a_broken_connection(
    bus: Bus, consume: Any, break_connections: Any
) -> None:
    queue, go = declare(bus), threading.Event()
    inbox = InboxOf(lambda _: go.wait(60))
    consume(queue, inbox, slots=2)
    put(bus, queue, "x")
    eventually(lambda: inbox.at_work == 1)
    break_connections()
    eventually(lambda: len(inbox.bodies) == 2)
    assert inbox.deliveries[1].redelivered
    go.set()
    eventually(lambda: depth(bus, queue) == 0 and inbox.at_work == 0)


def test_a_publisher_survives_a_broken_connection(bus: Bus, break_connections: Any) -> None:
    queue = declare(bus)
    put(bus, queue, "before")
    break_connections()
    eventually(lambda: _put_again(bus, queue, "after"))
    assert depth(bus, queue) >= 2


def test_a_queue_of_ones_own_lives_as_long_as_its_connection(bus: Bus, consume: Any, break_connections: Any) -> None:
    name = f"longstride.engine.{uuid4().hex}"
    inbox, connects = InboxOf(), []
    consumer = consume(Source(name, ["policy_published"]), inbox, on_connect=lambda: connects.append(1))
    bus.publish(b"v1", "policy_published", "msg-1")
    eventually(lambda: inbox.bodies == ["v1"])
    break_connections()
    eventually(lambda: len(connects) == 2)
    eventually(lambda: _publish_again(bus, b"v2", "policy_published"))
    eventually(lambda: "v2" in inbox.bodies)
    consumer.stop(5)
    with pytest.raises(Unroutable):
        eventually(lambda: _publish_reply_again(bus, name))


def test_each_incarnation_gets_its_copy(bus: Bus, consume: Any) -> None:
    inboxes = [InboxOf(), InboxOf()]
    for inbox in inboxes:
        consume(Source(f"longstride.engine.{uuid4().hex}", ["policy_published"]), inbox)
    bus.publish(b"v1", "policy_published", "msg-1")
    eventually(lambda: [inbox.bodies for inbox in inboxes] == [["v1"], ["v1"]])


def test_settling_is_reported_once_for_each_message(bus: Bus, consume: Any) -> None:
    queue, answers, lock = declare(bus), [], threading.Lock()

    def settled(number: int) -> Callable[[Any], None]:
        def note(error: Any) -> None:
            with lock:
                answers.append((number, type(error)))

        return note

    consume(queue, InboxOf())
    messages = [to_queue(b"x", queue if i % 2 else "gone", f"msg-{i}") for i in range(20)]
    bus.send(messages, [settled(i) for i in range(20)])
    eventually(lambda: len(answers) == 20)
    assert sorted(answers, key=lambda pair: pair[0]) == [(i, type(None) if i % 2 else Unroutable) for i in range(20)]


def test_an_unsuitable_queue_stops_the_declaration(bus: Bus) -> None:
    link = bus.link()
    channel = link.channel()
    with link.held():
        channel.queue_delete("longstride.generate.deep")
    link.close()
    declare(bus, "longstride.generate.deep", max_length=1)
    try:
        with pytest.raises(UnsuitableBroker, match=r"longstride\.generate\.deep.*Delete it"):
            bus.declare()
    finally:
        link = bus.link()
        channel = link.channel()
        with link.held():
            channel.queue_delete("longstride.generate.deep")
        link.close()
        bus.declare()


def _put_again(bus: Bus, queue: str, body: str) -> bool:
    try:
        bus.publish_reply(queue, body.encode(), f"msg-{body}")
    except BusUnavailable:
        return False
    return True


def _publish_again(bus: Bus, body: bytes, key: str) -> bool:
    try:
        bus.publish(body, key, "msg-again")
    except BusUnavailable:
        return False
    return True


def _publish_reply_again(bus: Bus, queue: str) -> bool:
    bus.publish_reply(queue, b"{}", "msg-again")
    return False
