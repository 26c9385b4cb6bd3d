"""The folder of an embedded stack: one process at a time, and a file that says where it is reached."""

import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path


class HomeTaken(RuntimeError):
    """Another embedded stack runs in this folder."""


@contextmanager
def owned(home: Path, start: int | None = None) -> Iterator[None]:
    """Hold the folder's lock, which says by whom it is held; the kernel lets go of it when this process dies, however it dies.

    Args:
        home: the folder.
        start: the descriptor that tells the world of a start which holds no lock yet; closed as soon as this one does.

    Raises:
        HomeTaken: another process holds it.
    """
    home.mkdir(parents=True, exist_ok=True)
    with (home / "stack.lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HomeTaken(f"another embedded stack runs in {home}") from error
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n".encode())
        lock.flush()
        if start is not None:
            os.close(start)
        yield


def tell(sentence: str) -> None:
    """Say in the log what the start does now, for whoever waits for it."""
    print(f"longstride: {sentence}", file=sys.stderr, flush=True)  # noqa: T201 - the log is standard error


def announce(home: Path, database_url: str, artifacts: Path, incarnation: str) -> None:
    """Say in ``stack.json`` that the stack is ready."""
    told = {
        "pid": os.getpid(),
        "database_url": database_url,
        "artifacts": str(artifacts),
        "started_at": datetime.now(UTC).isoformat(),
        "incarnation": incarnation,
        "version": version("longstride"),
    }
    path, fresh = home / "stack.json", home / ".stack.json"
    fresh.write_text(json.dumps(told))
    fresh.chmod(0o600)
    fresh.rename(path)


def withdraw(home: Path) -> None:
    """The stack was asked to end. One that ends by itself leaves ``stack.json``: its followers start it again."""
    (home / "stack.json").unlink(missing_ok=True)
