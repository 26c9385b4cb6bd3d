"""The broker in memory keeps RabbitMQ's promises, and one of its own: confirms wait for the consumer."""

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from longstride.messaging.bus import Bus
from longstride.messaging.consumer import Consumer
from longstride.messaging.errors import BusUnavailable
from longstride.messaging.memory_broker import MemoryBroker, topic_matches
from longstride.messaging.outgoing import to_queue
from tests.support.broker_semantics import *  # noqa: F403
from tests.support.broker_semantics import declare
from tests.support.eventually import eventually


@pytest.fixture
def name() -> Iterator[str]:
    name = uuid4().hex
    yield name
    MemoryBroker.forget(name)


@pytest.fixture
def bus(name: str) -> Iterator[Bus]:
    bus = Bus(f"memory://{name}")
    bus.declare()
    bus.connect()
    yield bus
    bus.close()


@pytest.fixture
def break_connections(name: str) -> Callable[[], None]:
    return MemoryBroker.named(name).hang_up


@pytest.mark.parametrize(
    ("pattern", "key", "matches"),
    [
        # The examples of RabbitMQ's topic tutorial.
        ("*.orange.*", "quick.orange.rabbit", True),
        ("*.*.rabbit", "quick.orange.rabbit", True),
        ("lazy.#", "lazy.orange.elephant", True),
        ("lazy.#", "lazy", True),
        ("lazy.#", "lazy.orange.new.rabbit", True),
        ("*.orange.*", "quick.orange.new.rabbit", False),
        ("*.orange.*", "orange", False),
        ("*.*.rabbit", "lazy.orange.new.rabbit", False),
        ("#", "", True),
        ("#", "any.thing", True),
        ("a.#.z", "a.z", True),
        ("a.#.z", "a.b.c.z", True),
        ("a.*.z", "a.z", False),
        ("a+b", "a+b", True),
        ("a+b", "aab", False),
    ],
)
def test_topics_match_as_in_amqp(pattern: str, key: str, matches: bool) -> None:
    assert topic_matches(pattern, key) is matches


def test_a_message_is_confirmed_when_it_has_been_consumed(bus: Bus) -> None:
    queue, confirmed = declare(bus), []
    bus.send([to_queue(b"x", queue, "msg-1")], [confirmed.append])
    bus.publish_reply(queue, b"later", "msg-2")  # the same thread has confirmed in between, had it confirmed at once
    assert confirmed == []
    consumer = Consumer(bus, queue, lambda _delivery: None)
    consumer.start()
    eventually(lambda: confirmed == [None])
    consumer.stop(5)


def test_every_copy_must_be_consumed(bus: Bus) -> None:
    confirmed: list[object] = []
    bus.send([_ended()], [confirmed.append])
    planner = Consumer(bus, "longstride.planner", lambda _delivery: None)
    planner.start()
    eventually(lambda: planner.progress.last_moved and not planner.busy)
    telemetry = Consumer(bus, "longstride.telemetry", lambda _delivery: None)
    assert confirmed == []
    telemetry.start()
    eventually(lambda: confirmed == [None])
    planner.stop(5)
    telemetry.stop(5)


def test_what_the_process_takes_with_it_was_never_confirmed(bus: Bus, name: str) -> None:
    confirmed: list[object] = []
    bus.send([to_queue(b"x", declare(bus), "msg-1")], [confirmed.append])
    MemoryBroker.named(name).hang_up()
    eventually(lambda: confirmed)
    assert isinstance(confirmed[0], BusUnavailable)


def test_names_do_not_meet(bus: Bus) -> None:
    other = Bus(f"memory://{uuid4().hex}")
    with pytest.raises(BusUnavailable, match="NOT_FOUND"):
        other.publish(b"{}", "submit_task", "msg-1")
    other.close()


def test_an_argument_it_does_not_know_is_an_error(bus: Bus) -> None:
    with pytest.raises(BusUnavailable, match="x-message-ttl"):
        declare(bus, message_ttl=1000)


def _ended() -> object:
    from longstride.messaging.outgoing import to_exchange

    return to_exchange(b"over", "task_ended", "msg-1")
