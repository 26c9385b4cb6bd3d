"""How fast and how much one direction of a call may move."""

from collections.abc import Callable
from dataclasses import dataclass

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

    def take(self, amount: int) -> float:
        """Seconds to wait before these bytes may go.

        Raises:
            FlowExhausted: they may not.
        """
        if self.exhausted or self.moved + amount > self.cap:
            self.exhausted = True
            raise FlowExhausted
        self.moved += amount
        return self.bucket.take(amount)


def flow(kbytes_per_s: int, max_mbytes: int, clock: Callable[[], float]) -> Flow:
    """A direction that has moved nothing yet."""
    rate = kbytes_per_s * 1024.0
    return Flow(TokenBucket(rate, rate * BURST_S, clock), max_mbytes << 20)
