"""How much a running sandbox has used: by its control group, or where there is none by looking at its processes."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from longstride.sandbox.cgroup import Group

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
SHARE = re.compile(r"^(?:Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB$", re.MULTILINE)
"""In proc(5)'s smaps_rollup."""


class Meter(Protocol):
    """Looked at every now and then while a sandbox runs, and once after it."""

    def look(self, first: int | None) -> None:
        """Take a reading.

        Args:
            first: host pid of the sandbox's first process; ``None`` when it is not known, or gone.
        """
        ...

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all processes so far."""
        ...

    @property
    def memory_bytes(self) -> int:
        """Memory in use at the last look, where nothing else holds it to its limit; else 0."""
        ...

    @property
    def peak_memory_bytes(self) -> int:
        """The most memory that was in use at once."""
        ...


@dataclass
class GroupMeter:
    """The kernel counts, and the kernel holds the memory."""

    group: Group
    cpu_s: float = 0.0
    memory_bytes: int = 0
    peak_memory_bytes: int = 0

    def look(self, first: int | None) -> None:
        """Read the group's counters, which are 0 once a container engine has removed it."""
        self.cpu_s = max(self.cpu_s, self.group.cpu_seconds())
        self.peak_memory_bytes = max(self.peak_memory_bytes, self.group.peak_memory_bytes())


@dataclass
class TreeMeter:
    """Sums over the descendants of the sandbox's first process; short-lived peaks between two looks go unseen."""

    cpu_s: float = 0.0
    memory_bytes: int = 0
    peak_memory_bytes: int = 0

    def look(self, first: int | None) -> None:
        """Read each process's times and its share of memory; children that were waited for are in their parents' times."""
        if first is None:
            return
        pids = descendants(first)
        self.cpu_s = max(self.cpu_s, sum(map(_cpu_ticks, pids)) / TICKS)
        self.memory_bytes = sum(map(_memory_bytes, pids))
        self.peak_memory_bytes = max(self.peak_memory_bytes, self.memory_bytes)


def descendants(pid: int) -> list[int]:
    """A process and all below it."""
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        waiting += children(found[-1])
    return found


def children(pid: int) -> list[int]:
    """Those of all its threads: a child is the thread's that made it."""
    return [int(child) for thread in _threads(pid) for child in _read(f"{pid}/task/{thread}/children").split()]


def _threads(pid: int) -> list[str]:
    try:
        return [thread.name for thread in Path(f"/proc/{pid}/task").iterdir()]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def parent(pid: int) -> int | None:
    """Whose child a process is; ``None``: there is none of this number."""
    fields = _read(f"{pid}/stat").rpartition(")")[2].split()
    return int(fields[1]) if fields else None


def _cpu_ticks(pid: int) -> int:
    """utime, stime, cutime and cstime of proc(5); the name before them may hold anything."""
    fields = _read(f"{pid}/stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15]))


def _memory_bytes(pid: int) -> int:
    """Anonymous and shared memory, each page divided by those who map it; where the kernel does not tell, private pages."""
    if shares := SHARE.findall(_read(f"{pid}/smaps_rollup")):
        return sum(map(int, shares)) * 1024
    fields = _read(f"{pid}/statm").split()
    return (int(fields[1]) - int(fields[2])) * PAGE if fields else 0


def _read(path: str) -> str:
    try:
        return Path("/proc", path).read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
