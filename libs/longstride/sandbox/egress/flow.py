"""How fast and how much one direction of a call may move."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

BURST_S = 0.25
"""Seconds' worth of bytes that may go at once after a pause."""


class TokenBucket:
    """Tokens are bytes. What is taken before it is there is owed, and the next taker waits: no chunk is too large for it."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        """
        Args:
            rate: tokens a second.
            burst: tokens that a full bucket holds.
            clock: seconds.
        """
        self._rate, self._burst, self._clock = rate, burst, clock
        self._tokens, self._at = burst, clock()

    def take(self, amount: int) -> float:
        """Seconds to wait before these may go."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate) - amount
        self._at = now
        return max(0.0, -self._tokens / self._rate)


class FlowExhausted(Exception):
    """The call has moved all it may in this direction."""


@dataclass
class Flow:
    """One direction, all connections of a call together."""

    bucket: TokenBucket
    cap: int
    """Bytes."""
    moved: int = 0
    exhausted: bool = False

    @property
    def room(self) -> int:
        """Bytes that may still go."""
        return self.cap - self.moved

    def take(self, amount: int) -> float:
        """Seconds to wait before these bytes may go.

        Raises:
            FlowExhausted: they may not.
        """
        if self.exhausted or amount > self.room:
            self.stop()
        self.moved += amount
        return self.bucket.take(amount)

    def stop(self) -> NoReturn:
        """More was asked for than may go.

        Raises:
            FlowExhausted: always.
        """
        self.exhausted = True
        raise FlowExhausted


def flow(kbytes_per_s: int, max_mbytes: int, clock: Callable[[], float], most_bytes: int | None = None) -> Flow:
    """A direction that has moved nothing yet; ``most_bytes`` holds it where that is less than ``max_mbytes``."""
    rate, cap = kbytes_per_s * 1024.0, max_mbytes << 20
    return Flow(TokenBucket(rate, rate * BURST_S, clock), cap if most_bytes is None else min(cap, most_bytes))
