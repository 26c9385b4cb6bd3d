"""A thread that does something again and again, and says so when it cannot go on."""

import logging
import threading
from collections.abc import Callable

from longstride.messaging.backoff import Backoff
from longstride.messaging.errors import BusUnavailable
from longstride.storage.errors import StorageError

logger = logging.getLogger(__name__)


class Loop:
    """Calls ``step`` every ``every_s`` seconds, or sooner when woken, until stopped.

    What the database or the broker refuses is logged and tried again with back-off. Anything else is a bug: the loop
    ends and keeps it in ``failure``, and the process that hosts it must end too.
    """

    def __init__(self, name: str, step: Callable[[], object], every_s: float, retry_limit_s: float = 10.0) -> None:
        self.name = name
        self.failure: BaseException | None = None
        self._step = step
        self._every_s = every_s
        self._backoff = Backoff(limit_s=retry_limit_s)
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; the first step is at once."""
        self._thread.start()

    def wake(self) -> None:
        """Take the next step now."""
        self._wake.set()

    @property
    def stopping(self) -> bool:
        """Whether the end was asked for: a long step should return."""
        return self._stopping.is_set()

    def pause(self, seconds: float) -> None:
        """Wait inside a step; ``stop`` ends the wait."""
        self._stopping.wait(seconds)

    busy = 0
    """A loop's step is never work that a drain must wait for."""

    def drain(self) -> None:
        """Nothing: it takes no work."""

    def stop(self, timeout_s: float = 10.0) -> None:
        """End after the step under way."""
        self._stopping.set()
        self._wake.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                logger.error("%s did not end within %.1f s", self.name, timeout_s)

    def _run(self) -> None:
        try:
            while not self.stopping:
                self._wake.clear()
                delay = self._attempt()
                if not self.stopping:
                    self._wake.wait(delay)
        except BaseException as error:
            self.failure = error
            logger.critical("%s: ended by an error that it does not know", self.name, exc_info=True)

    def _attempt(self) -> float:
        """One step; returns how long to wait for the next."""
        try:
            self._step()
        except (StorageError, BusUnavailable) as error:
            delay = self._backoff.next()
            logger.warning("%s: tries again in %.1f s: %s", self.name, delay, error)
            return delay
        self._backoff.reset()
        return self._every_s
