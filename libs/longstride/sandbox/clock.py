"""The time that a sandbox has run: it stands still while the sandbox is paused."""

import threading
import time


class RunningClock:
    """Seconds, from an arbitrary start."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._paused_at: float | None = None
        self._lost = 0.0

    def __call__(self) -> float:
        """Now."""
        with self._guard:
            return (time.monotonic() if self._paused_at is None else self._paused_at) - self._lost

    @property
    def paused(self) -> bool:
        """Whether it stands still."""
        return self._paused_at is not None

    def pause(self) -> None:
        """Stand still."""
        with self._guard:
            if self._paused_at is None:
                self._paused_at = time.monotonic()

    def resume(self) -> None:
        """Go on from there."""
        with self._guard:
            if self._paused_at is not None:
                self._lost += time.monotonic() - self._paused_at
                self._paused_at = None
