"""Before a service starts: is the broker there, is it new enough, are its queues the right ones?"""

import time
from collections.abc import Callable

from longstride.messaging.backoff import Backoff
from longstride.messaging.bus import Bus
from longstride.messaging.errors import BusUnavailable, UnsuitableBroker
from longstride.messaging.link import shown

MINIMUM_RABBITMQ = (3, 10)
"""The first with at-least-once dead-lettering from quorum queues."""


def check_broker(bus: Bus, *, wait_s: float = 60.0, say: Callable[[str], object] = lambda _text: None) -> None:
    """Wait for the broker, check its version, declare what is missing.

    Args:
        bus: to the broker.
        wait_s: how long it may take to appear.
        say: takes a sentence while waiting.

    Raises:
        UnsuitableBroker: too old, or a queue of ours exists with other properties.
        BusUnavailable: it did not appear in time; the text says what to do.
    """
    _wait(bus, wait_s, say)
    link = bus.link()
    try:
        version = link.server_version
    finally:
        link.close()
    if version is not None and version[:2] < MINIMUM_RABBITMQ:
        found, needed = ".".join(map(str, version)), ".".join(map(str, MINIMUM_RABBITMQ))
        raise UnsuitableBroker(f"RabbitMQ {found} at {shown(bus.url)} is too old: {needed} or newer is needed")
    bus.declare()


def _wait(bus: Bus, wait_s: float, say: Callable[[str], object]) -> None:
    deadline = time.monotonic() + wait_s
    backoff = Backoff(first_s=0.2, limit_s=2.0)
    while True:
        try:
            bus.link().close()
            return
        except BusUnavailable as error:
            pause = backoff.next()
            if time.monotonic() + pause > deadline:
                raise BusUnavailable(
                    f"gave up after {wait_s:g} s: {error}. Is it running, and is LONGSTRIDE_AMQP_URL right?"
                ) from error
            say(f"waiting for the broker at {shown(bus.url)}: {error}")
            time.sleep(pause)
