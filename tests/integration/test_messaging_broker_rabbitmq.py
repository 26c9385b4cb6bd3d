"""RabbitMQ keeps its promises to us: the same tests as for the broker in memory."""

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit, urlunsplit

import pytest

from longstride.messaging.bus import Bus
from longstride.messaging.outgoing import to_queue
from tests.support.broker_semantics import *  # noqa: F403
from tests.support.broker_semantics import declare, depth
from tests.support.cuttable import Cuttable
from tests.support.eventually import eventually


@pytest.fixture
def relay(amqp_url: str) -> Iterator[Cuttable]:
    parts = urlsplit(amqp_url)
    assert parts.hostname
    assert parts.port
    with Cuttable(parts.hostname, parts.port) as relay:
        yield relay


@pytest.fixture
def bus(amqp_url: str, relay: Cuttable) -> Iterator[Bus]:
    parts = urlsplit(amqp_url)
    bus = Bus(urlunsplit(parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{relay.port}")))
    bus.declare()
    _empty(bus)
    bus.connect()
    yield bus
    bus.close()


@pytest.fixture
def break_connections(relay: Cuttable) -> Callable[[], object]:
    return relay.cut


def _empty(bus: Bus) -> None:
    """The module's tests share a virtual host."""
    link = bus.link()
    channel = link.channel()
    with link.held():
        for queue in ("planner", "generate.fast", "generate.deep", "telemetry", "dead"):
            channel.queue_purge(f"longstride.{queue}")
    link.close()


def test_a_confirm_means_that_the_broker_has_it(bus: Bus) -> None:
    queue, confirmed = declare(bus), []
    bus.send([to_queue(b"x", queue, "msg-1")], [confirmed.append])
    eventually(lambda: confirmed == [None])
    assert depth(bus, queue) == 1, "nobody has consumed it"
