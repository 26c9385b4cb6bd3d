"""How much waits in a queue."""

from typing import Any

from longstride.messaging.bus import Bus
from longstride.messaging.errors import BusUnavailable
from longstride.messaging.link import Link


class QueueDepth:
    """Asks the broker, over a connection of its own that is opened when needed. For one thread."""

    def __init__(self, bus: Bus, queue: str) -> None:
        self._bus = bus
        self._queue = queue
        self._link: Link | None = None
        self._channel: Any = None

    def __call__(self) -> int:
        """Messages that no consumer has yet.

        Raises:
            BusUnavailable: the broker or the queue is gone.
        """
        try:
            return self._ask()
        except BusUnavailable:
            self.close()
            raise

    def _ask(self) -> int:
        if self._link is None:
            self._link = self._bus.link()
            self._channel = self._link.channel()
        self._link.turn(0)
        with self._link.held():
            return int(self._channel.queue_declare(self._queue, passive=True).message_count)

    def close(self) -> None:
        """Hang up."""
        link, self._link = self._link, None
        if link is not None:
            link.close()
