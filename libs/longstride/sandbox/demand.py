"""How many sandboxes should wait: as many as were in use at once of late."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large a pool may be."""

    floor: int = 1
    """Sandboxes that wait even when nothing was asked for."""
    ceiling: int = 8
    """Sandboxes that wait at the most."""
    idle_s: float = 60.0
    """Seconds for which a burst is remembered."""

    def __post_init__(self) -> None:
        if not 0 <= self.floor <= self.ceiling:
            raise ValueError(
                f"a pool's floor lies between 0 and its ceiling, not floor={self.floor}, ceiling={self.ceiling}"
            )


class Demand:
    """The most that were in use at once within the last ``window_s``: a burst may come again. Not thread-safe."""

    def __init__(self, window_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.used = 0
        self._window_s = window_s
        self._clock = clock
        self._peaks: deque[tuple[float, int]] = deque()
        """(until when, how many were in use), newest last, each more than all after it."""

    def took(self) -> None:
        """One more is in use."""
        self.used += 1

    def gave_back(self) -> None:
        """One is not any more."""
        while self._peaks and self._peaks[-1][1] <= self.used:
            self._peaks.pop()
        self._peaks.append((self._clock(), self.used))
        self.used -= 1

    def peak(self) -> int:
        """The most at once within the window, now included."""
        while self._peaks and self._peaks[0][0] <= self._clock() - self._window_s:
            self._peaks.popleft()
        return max(self.used, self._peaks[0][1] if self._peaks else 0)

    def changes_in(self) -> float | None:
        """Seconds until ``peak`` falls if nothing happens; ``None``: never."""
        return max(0.0, self._peaks[0][0] + self._window_s - self._clock()) if self._peaks else None
