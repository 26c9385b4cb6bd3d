"""A place for one message at a time, with a thread that handles it."""

import threading
import time

from longstride.messaging.delivery import Delivery


class Slot:
    """What one handler thread has, and how it is told. Its consumer's lock guards it."""

    def __init__(self, tag: str, lock: threading.RLock) -> None:
        self.tag = tag
        """The consumer tag of its subscription."""
        self.subscribed = False
        """Whether the broker may send it a message."""
        self._arrived = threading.Condition(lock)
        self._waiting: Delivery | None = None
        self._current: Delivery | None = None
        self._started = 0.0

    @property
    def free(self) -> bool:
        """Whether its thread has nothing to do."""
        return self._current is None

    def put(self, delivery: Delivery) -> None:
        """A message for its thread; the broker sends one at a time."""
        self._waiting = delivery
        self._arrived.notify()

    def wake(self) -> None:
        """Have ``take`` look again."""
        self._arrived.notify()

    def take(self) -> Delivery | None:
        """Wait for a message, or to be woken; it is the current one until ``finish``."""
        if self._waiting is None:
            self._arrived.wait()
        self._current, self._waiting = self._waiting, None
        self._started = time.monotonic()
        return self._current

    def finish(self) -> None:
        """Its thread is done with the current message."""
        self._current = None

    def clear(self) -> Delivery | None:
        """Take back what its thread has not started."""
        waiting, self._waiting = self._waiting, None
        return waiting

    def disconnected(self) -> None:
        """The connection is gone, and what came over it will come again."""
        self.subscribed = False
        self._waiting = None

    def long_acknowledged(self, seconds: float) -> Delivery | None:
        """The message whose handler has acknowledged it and gone on working for so long."""
        current = self._current
        if current is None or not current.acknowledged or current.settled:
            return None
        return current if time.monotonic() - self._started > seconds else None
