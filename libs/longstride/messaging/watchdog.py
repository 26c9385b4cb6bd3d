"""The progress watchdog: work waits, hands are free, and nothing moves. Better to die and be started again."""

import time
from collections.abc import Sequence

from longstride.messaging.bus import Bus
from longstride.messaging.consumer import Consumer
from longstride.messaging.errors import BusUnavailable, MessagingError
from longstride.messaging.loop import Loop
from longstride.messaging.queue_depth import QueueDepth

PATIENCE_S = 60.0


class Stuck(MessagingError):
    """A consumer takes nothing although messages wait and it has free slots."""


class Watchdog(Loop):
    """Watches consumers. Its ``failure`` ends the process with a non-zero exit code.

    A broker that is away is not a lack of progress: there is nothing to take then, and a fresh process would find it
    no sooner.
    """

    def __init__(self, bus: Bus, consumers: Sequence[Consumer], *, patience_s: float = PATIENCE_S) -> None:
        """
        Args:
            bus: to look into the queues.
            consumers: to be watched.
            patience_s: how long a backlog may go untouched.
        """
        super().__init__("watchdog", self._look, every_s=patience_s / 6)
        self._patience_s = patience_s
        self._watched = [(consumer, QueueDepth(bus, consumer.name)) for consumer in consumers]
        self._waiting_since: dict[str, float] = {}

    def _look(self) -> None:
        for consumer, depth in self._watched:
            if self._idle_with_work(consumer, depth):
                since = self._waiting_since.setdefault(consumer.name, time.monotonic())
                if time.monotonic() - since > self._patience_s:
                    raise Stuck(
                        f"{consumer.name}: messages have waited {self._patience_s:g} s and no free slot takes one"
                    )
            else:
                self._waiting_since.pop(consumer.name, None)

    def _idle_with_work(self, consumer: Consumer, depth: QueueDepth) -> bool:
        moved_lately = time.monotonic() - consumer.progress.last_moved < self._patience_s / 2
        if consumer.progress.free == 0 or moved_lately:
            return False
        try:
            return depth() > 0
        except BusUnavailable:
            return False

    def stop(self, timeout_s: float = 10.0) -> None:
        """End."""
        super().stop(timeout_s)
        for _, depth in self._watched:
            depth.close()
