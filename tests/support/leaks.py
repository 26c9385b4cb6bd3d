"""What a test left running: threads and child processes that were not there before it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GRACE_SECONDS = 3
"""For what is on its way out when the test returns."""
LASTING = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Processes that Python itself starts once and keeps."""


def children() -> set[int]:
    """Pids of this process's children; in place of the processes that Python keeps, those that they forked for it."""
    pids = _children_of("self")
    lasting = {pid for pid in pids if any(name in command(pid) for name in LASTING)}
    return (pids - lasting).union(*map(_children_of, lasting))


def _children_of(process: object) -> set[int]:
    try:
        threads = list(Path(f"/proc/{process}/task").iterdir())
    except FileNotFoundError:
        return set()
    return {
        int(pid)
        for thread in threads
        for pid in _read(thread / "children").split()  # A child belongs to the thread that made it.
    }


def command(pid: int) -> str:
    """A process's command line; empty where it has gone."""
    return _read(Path(f"/proc/{pid}/cmdline")).replace("\0", " ").strip()


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def threads() -> set[threading.Thread]:
    """Threads that would keep this process from ending."""
    return {thread for thread in threading.enumerate() if not thread.daemon}


@contextmanager
def none_left() -> Iterator[None]:
    """Raises `AssertionError` naming the threads and processes that the body started and did not end."""
    before = (threads(), children())
    yield
    deadline = time.monotonic() + GRACE_SECONDS
    while (left := _left(*before)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left, f"left running: {', '.join(left)}"


def _left(threads_before: set[threading.Thread], children_before: set[int]) -> list[str]:
    new_threads = [f"thread {thread.name}" for thread in threads() - threads_before]
    return new_threads + [f"process {pid} ({command(pid) or 'zombie'})" for pid in children() - children_before]
