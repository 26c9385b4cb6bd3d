"""Looking for something in an output that grows, a piece at a time."""

import time
from collections.abc import Callable

from longstride.sandbox.base import Cancellation
from longstride.tools.output_ring import OutputRing

STRIDE, OVERLAP = 64 << 10, 16 << 10
"""Bytes that are looked at at once, and those before them that are looked at again: a match may begin in the piece before."""
LEAST_S = 1.0
"""For what is there already, even where nobody waits."""

Found = Callable[[bytes, int, int], bool]
"""Whether the output holds it between two places."""


def anything(_output: bytes, _start: int, _end: int) -> bool:
    """The first byte will do."""
    return True


def nothing(_output: bytes, _start: int, _end: int) -> bool:
    """Wait for the end."""
    return False


class Lookout:
    """Each byte is looked at once, but for the overlap. Call it without any lock: a search may take long."""

    def __init__(self, ring: OutputRing, place: int, found: Found, seconds: float | None, stopped: Cancellation):
        """
        Args:
            ring: where the output comes in.
            place: the first byte that counts.
            found: is asked of each piece.
            seconds: after which no further piece is begun, or ``LEAST_S`` where that is more.
            stopped: nor when this is set.
        """
        self.found = False
        self._ring, self._place, self._next = ring, place, place
        self._contains, self._stopped = found, stopped
        self._deadline = None if seconds is None else time.monotonic() + max(seconds, LEAST_S)

    def look(self) -> bool:
        """At what has come since the last time."""
        if self._ring.end > self._next:
            output, dropped = self._ring.since(self._place)
            first = self._place + dropped
            self._next = max(self._next, first)
            while not self.found and self._next < first + len(output) and not self._over:
                self._piece(output, self._next - first)
        return self.found

    def _piece(self, output: bytes, start: int) -> None:
        end = min(start + STRIDE, len(output))
        self.found = self._contains(output, max(0, start - OVERLAP), end)
        self._next += end - start

    @property
    def _over(self) -> bool:
        return self._stopped.is_set() or (self._deadline is not None and time.monotonic() > self._deadline)
