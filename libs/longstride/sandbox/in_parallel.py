"""A few things at a time: object stores answer in milliseconds each."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

PARALLEL = 8
T = TypeVar("T")
R = TypeVar("R")


def in_parallel(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Like ``map``, a few at a time; the first error is raised."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(PARALLEL, len(items))) as pool:
        return list(pool.map(work, items))
