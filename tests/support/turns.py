"""Tests that restart a server want it for themselves; all others share the servers, however many run at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def turn(item: pytest.Item) -> Iterator[None]:
    """Hold the servers while a test runs: alone if it uses ``stack``, with others if it uses ``servers``."""
    folder, fixtures = os.environ.get("LONGSTRIDE_STACK"), getattr(item, "fixturenames", ())
    if not folder or "servers" not in fixtures:
        yield
        return
    with (Path(folder) / "tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if "stack" in fixtures else fcntl.LOCK_SH)
        yield
