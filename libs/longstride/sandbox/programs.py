"""Which of a sandbox's processes are the command itself, seen from the host."""

import contextlib
import os
import signal
from pathlib import Path

from longstride.sandbox.meter import children, descendants

SHELLS = ("sh", "bash", "dash")


def program(first: int) -> list[int]:
    """The oldest child of a sandbox's first process; when that is a shell that waits for others, those.

    A shell that does not handle SIGTERM ends at once, and everything else with it, before it could end well.
    """
    found = sorted(children(first), key=_started)[:1]
    while (
        found and all(_name(pid) in SHELLS for pid in found) and (below := [c for pid in found for c in children(pid)])
    ):
        found = below
    return found


def signalled(pid: int, first: int, number: signal.Signals) -> None:
    """Signal one of a sandbox's processes; nothing when it has ended, and the number may be another's."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            if pid in descendants(first):
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _name(pid: int) -> str:
    return _read(pid, "comm").strip()


def _started(pid: int) -> int:
    """In ticks since the host's start; the name before it may hold anything."""
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 else 0


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
