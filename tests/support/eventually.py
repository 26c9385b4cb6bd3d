"""Waiting for something that another thread or process does."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(condition: Callable[[], T], timeout_s: float = 15.0) -> T:
    """The first true value of `condition()`. Raises `AssertionError` with the last one where none comes in time."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"still {value!r} after {timeout_s:g} s"
        time.sleep(0.01)
    return value
