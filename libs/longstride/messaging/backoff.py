"""How long to wait before the next try."""

import random


class Backoff:
    """Exponential delays with jitter: 50–100 % of ``first_s`` · 2ⁿ, at most ``limit_s``."""

    def __init__(self, first_s: float = 0.1, limit_s: float = 10.0) -> None:
        self._first_s = first_s
        self._limit_s = limit_s
        self._tries = 0

    def next(self) -> float:
        """Seconds to wait now; longer at each call."""
        delay = delay_s(self._tries, self._first_s, self._limit_s)
        self._tries += 1
        return delay

    def reset(self) -> None:
        """It worked."""
        self._tries = 0


def delay_s(tries: int, first_s: float, limit_s: float) -> float:
    """Seconds to wait after ``tries`` earlier tries."""
    ceiling = min(limit_s, first_s * 2.0 ** min(tries, 40))
    return ceiling * random.uniform(0.5, 1.0)
