"""Waiting for something that another thread or process does."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
SHORTEST_S, LONGEST_S = 0.005, 0.05
"""Between two looks."""


def eventually(condition: Callable[[], T], timeout_s: float = 60.0) -> T:
    """The first true value of `condition()`. Raises `AssertionError` with the last one where none comes in time.

    The longer it takes, the less often it looks: what is waited for needs the processor too.
    """
    began = time.monotonic()
    while not (value := condition()):
        waited_s = time.monotonic() - began
        assert waited_s < timeout_s, f"still {value!r} after {timeout_s:g} s"
        time.sleep(min(max(SHORTEST_S, waited_s / 20), LONGEST_S))
    return value
