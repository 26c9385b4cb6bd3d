"""The breaker: one model call that writes far more than the task's others is a loop inside the policy."""

from collections.abc import Sequence
from statistics import median

FLOOR = 4_096
"""Output tokens below which nothing is a spike."""
FACTOR = 8
"""Times the median of the calls before."""
MOST = 2
"""Spikes before the breaker opens."""


def spikes(calls: Sequence[int], floor: int = FLOOR, factor: float = FACTOR) -> int:
    """How many of the calls (output tokens each, oldest first) are spikes against the median of those before them."""
    return sum(tokens >= floor and tokens > factor * median(calls[:i]) for i, tokens in enumerate(calls) if i >= 3)


def tripped(calls: Sequence[int]) -> bool:
    """The task should stop."""
    return spikes(calls) >= MOST
