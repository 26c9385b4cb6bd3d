"""How fast and how much one direction of a call may move."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

BURST_S = 0.25
"""Seconds' worth of bytes that may go at once after a pause."""
CHUNKS = (256, 1 << 16)
"""Fewest and most bytes that are moved at a time."""
LATELY_S = 1.0
HELD_SHARE = 0.1
"""Of a call's time, from which on the rate is what made it slow."""


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


class Hold:
    """How long one direction was held back. Waits of several connections at a time count once."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seconds, self._until = 0.0, float("-inf")

    def add(self, wait_s: float) -> None:
        """A transfer waits so long from now on."""
        if wait_s:
            now = self._clock()
            self._seconds += max(0.0, now + wait_s - max(now, self._until))
            self._until = max(self._until, now + wait_s)

    def explains(self, ran_s: float) -> bool:
        """Whether a call that is stopped now, after ``ran_s`` seconds, was held back to the end and for a good part of it."""
        return self._clock() - self._until < LATELY_S and self._seconds >= HELD_SHARE * ran_s


class FlowExhausted(Exception):
    """The call has moved all it may in this direction."""


@dataclass
class Flow:
    """One direction, all connections of a call together."""

    bucket: TokenBucket
    cap: int
    """Bytes."""
    hold: Hold
    chunk: int = CHUNKS[1]
    """Bytes to move at a time: what a slow rate lets through at once, so that a count tells how far it got."""
    moved: int = field(default=0, init=False)
    exhausted: bool = field(default=False, init=False)
    _guard: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @property
    def room(self) -> int:
        """Bytes that may still go."""
        return self.cap - self.moved

    def take(self, amount: int) -> float:
        """Seconds to wait before these bytes may go.

        Raises:
            FlowExhausted: they may not.
        """
        with self._guard:
            if self.exhausted or amount > self.room:
                self.stop()
            self.moved += amount
        wait_s = self.bucket.take(amount)
        self.hold.add(wait_s)
        return wait_s

    def charge(self, amount: int) -> int:
        """What of these bytes may still go: they went already, elsewhere, and cannot be slowed down. From any thread."""
        with self._guard:
            allowed = min(amount, self.room)
            self.exhausted = self.exhausted or allowed < amount
            self.moved += allowed
        return allowed

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
    fewest, most = CHUNKS
    chunk = min(most, max(fewest, int(rate * BURST_S)))
    held = cap if most_bytes is None else min(cap, most_bytes)
    return Flow(TokenBucket(rate, rate * BURST_S, clock), held, Hold(clock), chunk)
