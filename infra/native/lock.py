"""One supervisor a folder: a lock that the kernel drops when its holder dies."""

import fcntl
import time
from pathlib import Path
from typing import BinaryIO

from infra.native.errors import StackError

FILE = "lock"
PATIENCE_SECONDS = 2
"""`held` itself takes the lock for a moment, so one refusal does not mean that another supervisor runs."""


def held(folder: Path) -> bool:
    """Whether a supervisor holds `folder`."""
    try:
        file = (folder / FILE).open("rb")
    except FileNotFoundError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def hold(folder: Path) -> BinaryIO:
    """Hold `folder` until this process ends or closes the file. `StackError` where another supervisor does."""
    file = (folder / FILE).open("ab")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not _locked(file):
        if time.monotonic() > deadline:
            file.close()
            raise StackError(f"another stack runs in {folder}")
        time.sleep(0.02)
    return file


def _locked(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
