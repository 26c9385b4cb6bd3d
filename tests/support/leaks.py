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
    """Pids of this process's children, those that Python keeps left out."""
    pids = {
        int(pid)
        for thread in Path("/proc/self/task").iterdir()
        for pid in _read(thread / "children").split()  # A child belongs to the thread that made it.
    }
    return {pid for pid in pids if not any(name in command(pid) for name in LASTING)}


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
