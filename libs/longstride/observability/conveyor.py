"""A bounded queue to a slow or dead receiver, emptied in batches by a thread of its own. It never blocks who puts things in."""

import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
logger = logging.getLogger(__name__)
STALLED_S = 1.0
"""A delivery that takes longer is not waited for by a flush that begins later."""


class Conveyor(Generic[Item]):
    """Takes items at once, delivers them later, drops and counts what does not fit.

    The thread starts with the first item, in the process that offers it: a forked child begins empty, with a thread of its own.
    """

    def __init__(
        self,
        name: str,
        deliver: Callable[[Sequence[Item]], None],
        *,
        capacity: int = 8192,
        batch: int = 512,
        interval_s: float = 0.5,
        tries: int = 8,
        backoff_s: float = 0.2,
        max_backoff_s: float = 5.0,
    ) -> None:
        """``deliver`` is called from the thread with up to ``batch`` items and raises when it could not deliver them;
        after ``tries`` failures (16 s by default, longer than a restart of PostgreSQL) a batch is dropped."""
        self.name = name
        self.capacity, self.batch, self.interval_s = capacity, batch, interval_s
        self.tries = tries
        self._pauses = [min(backoff_s * 2**n, max_backoff_s) for n in range(tries - 1)]
        self._deliver = deliver
        self._reset()
        _conveyors.add(self)

    def _reset(self) -> None:
        self.delivered = self.dropped = 0
        self.failing = False
        """The last delivery failed."""
        self._accepted = self._settled = 0
        self._flush_to = 0
        self._closing = False
        self._busy_since: float | None = None
        """When the delivery under way began (monotonic seconds)."""
        self._queue: deque[Item] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def offer(self, item: Item) -> bool:
        """Put an item in; ``False`` when it was dropped, because the queue is full or closed."""
        with self._changed:
            if self._closing or len(self._queue) >= self.capacity or not self._running():
                self.dropped += 1
                return False
            self._queue.append(item)
            self._accepted += 1
            if len(self._queue) in (1, self.batch):
                self._changed.notify_all()
            return True

    def flush(self, timeout_s: float) -> bool:
        """Wait until what was accepted so far is delivered or given up; ``False`` when the time is over first.

        A receiver that fails, or has been busy with one batch for ``STALLED_S``, is not waited for: a job that flushes at
        its end would else pay the time-out again and again for as long as an outage lasts.
        """
        with self._changed:
            target = self._flush_to = self._accepted
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._settled >= target or self._down(), timeout_s)
            return self._settled >= target

    def _down(self) -> bool:
        return self.failing or (self._busy_since is not None and time.monotonic() - self._busy_since > STALLED_S)

    def stop(self) -> None:
        """Take nothing more in; the rest gets one try each."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def close(self, timeout_s: float) -> bool:
        """Stop, wait for the rest, and drop it when the time is over. ``True``: all was delivered."""
        self.stop()
        with self._changed:
            done = self._changed.wait_for(lambda: self._settled >= self._accepted, timeout_s)
            self.dropped += len(self._queue)
            self._settled += len(self._queue)
            self._queue.clear()
        return done and not self.failing

    def _running(self) -> bool:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=f"telemetry-{self.name}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no thread left, or the interpreter is going down: losing a span beats failing a step
                return False
            self._thread = thread
        return True

    def _run(self) -> None:
        while batch := self._next():
            self._attempt(batch)

    def _next(self) -> list[Item]:
        """The next batch, full or ``interval_s`` old; empty when closed and done."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            self._changed.wait_for(self._due, self.interval_s)
            return [self._queue.popleft() for _ in range(min(self.batch, len(self._queue)))]

    def _due(self) -> bool:
        return self._closing or len(self._queue) >= self.batch or self._flush_to > self._settled

    def _attempt(self, batch: list[Item]) -> None:
        for pause_s in (*self._pauses, None):
            if self._delivered(batch):
                return
            if pause_s is None or self._closed_within(pause_s):
                break
        self._settle(len(batch), dropped=len(batch))

    def _delivered(self, batch: list[Item]) -> bool:
        self._busy_since = time.monotonic()
        try:
            self._deliver(batch)
        except Exception as error:  # noqa: BLE001 - whatever a receiver throws, no step may notice
            self._failed(error)
            return False
        finally:
            self._busy_since = None
        self._recovered()
        self._settle(len(batch), delivered=len(batch))
        return True

    def _failed(self, error: Exception) -> None:
        if not self.failing:
            what = f"{type(error).__name__}: {error}".partition("\n")[0]
            logger.warning("telemetry to %s fails (%s); work goes on without it", self.name, what)
        with self._changed:
            self.failing = True
            self._changed.notify_all()

    def _recovered(self) -> None:
        if self.failing:
            logger.info("telemetry to %s works again; %d items were dropped in all", self.name, self.dropped)
        self.failing = False

    def _closed_within(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._closing, seconds)

    def _settle(self, count: int, *, delivered: int = 0, dropped: int = 0) -> None:
        with self._changed:
            self._settled += count
            self.delivered += delivered
            self.dropped += dropped
            self._changed.notify_all()


_conveyors: "weakref.WeakSet[Conveyor[Any]]" = weakref.WeakSet()


def _after_fork() -> None:
    """The child has no thread and maybe a lock that nobody will release; what was queued is the parent's to deliver."""
    for conveyor in list(_conveyors):
        conveyor._reset()


os.register_at_fork(after_in_child=_after_fork)
