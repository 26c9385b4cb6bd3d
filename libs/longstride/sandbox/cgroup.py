"""Control groups: what a whole sandbox may use, what it did use, and the kernel's word on which limit it hit.

Hosts are v1, v2, or hybrid: v1 controllers beside a v2 tree that has none of them but does have ``cgroup.kill``. A sandbox
gets one directory in each hierarchy that gives something; below, ``Hierarchy`` is one of those.
"""

import contextlib
import errno
import os
import re
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from longstride.contracts.v1.limits import SandboxLimits

Controller = str
WANTED: tuple[Controller, ...] = ("memory", "pids", "cpu")
MEBIBYTE = 1 << 20
CPU_PERIOD_US = 100_000
FREEZE_S = 5.0
"""For processes to stop; one that waits for a disk does not before that answers."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """What the sandbox itself takes in its group, and the command is not charged for."""

    processes: int
    memory_mb: int = 0


BWRAP = Overhead(processes=2)


@dataclass(frozen=True)
class Hierarchy:
    """A tree of control groups, and the directory in it under which sandboxes are made."""

    version: int
    controllers: frozenset[Controller]
    base: Path


class Group(Protocol):
    """What bounds and counts one sandbox as a whole. Counters of what the host does not count read as 0."""

    @property
    def name(self) -> str:
        """Unique on the host."""
        ...

    @property
    def entrances(self) -> tuple[str, ...]:
        """Files that a process writes ``0`` to in order to join."""
        ...

    def create(self, limits: SandboxLimits | None = None) -> None:
        """Make it, and write the limits where they are known already."""
        ...

    def limit(self, limits: SandboxLimits, overhead: Overhead = BWRAP) -> None:
        """Write the limits."""
        ...

    def freeze(self, frozen: bool) -> bool:
        """Stop every process inside, or let all go on; ``False`` where that cannot be."""
        ...

    def kill(self) -> None:
        """SIGKILL to every process inside."""
        ...

    def remove(self) -> bool:
        """Kill what is left, and remove it; ``False`` when something does not die."""
        ...

    def out_of_memory(self) -> int:
        """Processes that the kernel killed for memory."""
        ...

    def refused_processes(self) -> int:
        """Times that a fork or thread was refused."""
        ...

    def peak_memory_bytes(self) -> int:
        """The most memory that was charged at once."""
        ...

    def memory_bytes(self) -> int:
        """Memory that is charged now."""
        ...

    def processes(self) -> int:
        """Processes and threads inside now."""
        ...

    def cpu_seconds(self) -> float:
        """CPU time of all processes so far."""
        ...


@dataclass(frozen=True)
class Cgroup:
    """The directories of one sandbox. Counters of a controller that the host does not give read as 0."""

    name: str
    hierarchies: tuple[Hierarchy, ...]

    @property
    def entrances(self) -> tuple[str, ...]:
        """Files that a process writes ``0`` to in order to join."""
        return tuple(f"{directory}/cgroup.procs" for directory in self._directories())

    def create(self, limits: SandboxLimits | None = None) -> None:
        """Make the directories, and write the limits where they are known already."""
        for directory in self._directories():
            Path(directory).mkdir()
        if limits:
            self.limit(limits)

    def limit(self, limits: SandboxLimits, overhead: Overhead = BWRAP) -> None:
        """Write the limits; once, because memory in use may be above a later one."""
        for hierarchy in self.hierarchies:
            for file, value in settings(hierarchy, limits, overhead):
                _write_limit(hierarchy.base / self.name / file, value)

    def freeze(self, frozen: bool) -> bool:
        """Stop every process inside, or let all go on; ``False`` where no hierarchy can, or the group is gone."""
        for directory in self._directories():
            for file, values in (("cgroup.freeze", ("0", "1")), ("freezer.state", ("THAWED", "FROZEN"))):
                switch = Path(directory, file)
                if switch.exists():
                    if not _switched(switch, values[frozen]):
                        return False
                    if not frozen or _stands_still(directory):
                        return True
                    _switched(switch, values[False])
        return False

    def kill(self) -> None:
        """SIGKILL to every process inside, at once where the kernel has ``cgroup.kill`` (5.14)."""
        directories = self._directories()
        for switch in (Path(directory, "cgroup.kill") for directory in directories):
            if switch.exists():
                switch.write_text("1")
                return
        for directory in directories[:1]:
            for pid in _read(f"{directory}/cgroup.procs").split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)

    def remove(self, patience_s: float = 5.0) -> bool:
        """Kill what is left and remove the directories; ``False`` when the kernel kept one busy for all of ``patience_s``."""
        deadline = time.monotonic() + patience_s
        left = self._directories()
        while left := [directory for directory in left if not _rmdir(Path(directory))]:
            if time.monotonic() > deadline:
                return False
            self.kill()
            time.sleep(0.002)
        return True

    def out_of_memory(self) -> int:
        """Processes that the kernel killed for memory."""
        return _counted("oom_kill", self._read("memory", "memory.oom_control", "memory.events"))

    def refused_processes(self) -> int:
        """Times that a fork or thread was refused."""
        return _counted("max", self._read("pids", "pids.events", "pids.events"))

    def peak_memory_bytes(self) -> int:
        """The most memory that was charged at once, page cache and tmpfs included."""
        return int(self._read("memory", "memory.max_usage_in_bytes", "memory.peak") or 0)

    def memory_bytes(self) -> int:
        """Memory that is charged now."""
        return int(self._read("memory", "memory.usage_in_bytes", "memory.current") or 0)

    def processes(self) -> int:
        """Processes and threads inside now."""
        return int(self._read("pids", "pids.current", "pids.current") or 0)

    def cpu_seconds(self) -> float:
        """CPU time of all processes so far, those that ended included."""
        return max(
            (_cpu_seconds(f"{hierarchy.base}/{self.name}", hierarchy.version) for hierarchy in self.hierarchies),
            default=0.0,
        )

    def _directories(self) -> list[str]:
        return [f"{hierarchy.base}/{self.name}" for hierarchy in self.hierarchies]

    def _read(self, controller: Controller, file_v1: str, file_v2: str) -> str:
        """A file of the hierarchy that has the controller; empty without one."""
        for hierarchy in self.hierarchies:
            if controller in hierarchy.controllers:
                return _read(f"{hierarchy.base}/{self.name}/{file_v1 if hierarchy.version == 1 else file_v2}")
        return ""


NO_GROUP = Cgroup("", ())
"""Counts nothing, and holds nobody."""


def _cpu_seconds(directory: str, version: int) -> float:
    """v2 counts in every group, v1 where ``cpuacct`` is."""
    if version == 2:
        return _counted("usage_usec", _read(f"{directory}/cpu.stat")) / 1e6
    return int(_read(f"{directory}/cpuacct.usage") or 0) / 1e9


def _counted(key: str, text: str) -> int:
    """The number beside a key."""
    found = re.search(rf"^{key} (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else 0


def settings(hierarchy: Hierarchy, limits: SandboxLimits, overhead: Overhead = BWRAP) -> Iterator[tuple[str, str]]:
    """(file, value) of each limit in one hierarchy, in the order in which they must be written."""
    memory, processes = (
        str((limits.memory_mb + overhead.memory_mb) * MEBIBYTE),
        str(limits.processes + overhead.processes),
    )
    quota = str(max(1000, int(limits.cpus * CPU_PERIOD_US)))
    if "memory" in hierarchy.controllers:
        if hierarchy.version == 1:
            yield from (("memory.limit_in_bytes", memory), ("memory.memsw.limit_in_bytes", memory))
        else:
            yield from (("memory.max", memory), ("memory.swap.max", "0"))
    if "pids" in hierarchy.controllers:
        yield "pids.max", processes
    if "cpu" in hierarchy.controllers:
        if hierarchy.version == 1:
            yield from (("cpu.cfs_period_us", str(CPU_PERIOD_US)), ("cpu.cfs_quota_us", quota))
        else:
            yield "cpu.max", f"{quota} {CPU_PERIOD_US}"


def discover(proc: Path = Path("/proc")) -> tuple[Hierarchy, ...]:
    """The hierarchies in which this process may make groups, each under its own group so that its own limits still hold."""
    own = dict(_own_groups(proc / "self"))
    found: dict[tuple[int, frozenset[str]], Hierarchy] = {}
    for version, mount, root, names in _cgroup_mounts(proc):
        directory = _below(mount, root, own.get("" if version == 2 else ",".join(sorted(names)), "/"))
        hierarchy = _v2(directory, mount) if version == 2 else _v1(directory, names)
        if hierarchy:
            found.setdefault((version, hierarchy.controllers if version == 1 else frozenset()), hierarchy)
    return _without_redundant(tuple(found.values()))


def of_process(pid: int, proc: Path = Path("/proc")) -> Cgroup:
    """The group that a process was put into by somebody else; one that counts nothing where it has ended."""
    own = dict(_own_groups(proc / str(pid)))
    found = []
    for hierarchy in mounted(proc):
        group = own.get("" if hierarchy.version == 2 else ",".join(sorted(hierarchy.controllers)), "/")
        found.append(
            (Path(group).name, Hierarchy(hierarchy.version, hierarchy.controllers, hierarchy.base / group[1:]))
        )
    name = next((name for name, hierarchy in found if "memory" in hierarchy.controllers), "")
    if not name:
        # The process has ended, and is in no group or the topmost: what that counts is not its own.
        return NO_GROUP
    there = (Hierarchy(h.version, h.controllers, h.base.parent) for own_name, h in found if own_name == name)
    return Cgroup(name, tuple(there))


def mounted(proc: Path = Path("/proc")) -> tuple[Hierarchy, ...]:
    """Every hierarchy from its top: container runtimes make their groups in all of them, whatever they give."""
    found: dict[Path, Hierarchy] = {}
    for version, mount, _, names in _cgroup_mounts(proc):
        offered = names if version == 1 else frozenset(_read(mount / "cgroup.controllers").split()) & frozenset(WANTED)
        found.setdefault(mount, Hierarchy(version, offered, mount))
    return tuple(found.values())


def _without_redundant(hierarchies: tuple[Hierarchy, ...]) -> tuple[Hierarchy, ...]:
    """v2 counts CPU time and freezes without any controller: v1's for these alone are not worth a directory beside it."""
    if not any(hierarchy.version == 2 for hierarchy in hierarchies):
        return hierarchies
    return tuple(
        hierarchy
        for hierarchy in hierarchies
        if not hierarchy.controllers <= {"cpuacct", "freezer"} or hierarchy.version == 2
    )


def given(hierarchies: tuple[Hierarchy, ...]) -> frozenset[Controller]:
    """All controllers together."""
    return frozenset().union(*(h.controllers for h in hierarchies))


def _v1(directory: Path, names: frozenset[str]) -> Hierarchy | None:
    useful = names & {*WANTED, "cpuacct", "freezer"}
    return Hierarchy(1, useful, directory) if useful and _can_make_groups(directory) else None


def _v2(directory: Path, mount: Path) -> Hierarchy | None:
    """The nearest group whose children may have the controllers; else one without, for ``cgroup.kill`` and ``cpu.stat``."""
    above = [directory, *(parent for parent in directory.parents if mount in (parent, *parent.parents))]
    usable = [base for base in above if _can_make_groups(base)]
    for base in usable:
        if granted := grant(base):
            return Hierarchy(2, granted, base)
    return Hierarchy(2, frozenset(), usable[0]) if usable else None


def grant(base: Path, wanted: Iterable[Controller] = WANTED) -> frozenset[Controller]:
    """Let a v2 group's children have its controllers; nothing when one of them cannot be had.

    A group that holds processes cannot give any (EBUSY). In a container the processes of the topmost group are moved
    into a child first, as container engines inside containers do; any other group is left as it is.
    """
    offered = frozenset(_read(base / "cgroup.controllers").split()) & frozenset(wanted)
    if not _enable(base, offered) and _is_container_root(base):
        _move_processes(base, base / "longstride-host")
        _enable(base, offered)
    granted = offered & frozenset(_read(base / "cgroup.subtree_control").split())
    return granted if granted == offered else frozenset()


def _enable(base: Path, controllers: frozenset[Controller]) -> bool:
    missing = controllers - frozenset(_read(base / "cgroup.subtree_control").split())
    try:
        for controller in sorted(missing):
            (base / "cgroup.subtree_control").write_text(f"+{controller}")
    except OSError:
        return False
    return True


def _is_container_root(base: Path) -> bool:
    """The top of what is mounted, yet not of the whole tree, which alone has no ``cgroup.type``."""
    return os.path.ismount(base) and (base / "cgroup.type").exists()


def _move_processes(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for pid in _read(source / "cgroup.procs").split():
        with contextlib.suppress(ProcessLookupError):
            (target / "cgroup.procs").write_text(pid)


def _can_make_groups(directory: Path) -> bool:
    trial = directory / f"longstride-trial-{os.getpid()}-{time.monotonic_ns()}"
    try:
        trial.mkdir()
    except OSError:
        return False
    trial.rmdir()
    return True


def _own_groups(process: Path) -> Iterator[tuple[str, str]]:
    """(controllers, group) of a process; "" is v2."""
    for line in _read(process / "cgroup").splitlines():
        _, names, group = line.split(":", 2)
        yield ",".join(sorted(names.split(","))), group


def _cgroup_mounts(proc: Path) -> Iterator[tuple[int, Path, str, frozenset[str]]]:
    """(version, mount point, root, controllers) from mountinfo; see proc(5)."""
    for line in _read(proc / "self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        root, mount = left.split(" ")[3:5]
        if kind == "cgroup2":
            yield 2, Path(mount), root, frozenset()
        elif kind == "cgroup":
            known = {"memory", "pids", "cpu", "cpuacct", "cpuset", "blkio", "freezer", "devices", "net_cls", "net_prio"}
            known |= {"perf_event", "hugetlb", "rdma", "misc"}
            yield 1, Path(mount), root, frozenset(options.split(",")) & known


def _below(mount: Path, root: str, group: str) -> Path:
    """Where a group's directory is, when ``root`` of its hierarchy is what is mounted."""
    relative = os.path.relpath(group, root)
    inside = mount / relative if not relative.startswith("..") else mount
    return inside if inside.is_dir() else mount


def _write_limit(path: Path, value: str) -> None:
    """Write a limit. Absent: this kernel does not account for it (swap). EINVAL: a parent's limit is tighter, and holds."""
    if not path.exists():
        return
    try:
        path.write_text(value)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise


def _switched(switch: Path, value: str) -> bool:
    """``False``: the group is gone. It ends with its sandbox, which may be at any moment."""
    try:
        switch.write_text(value)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENODEV):
            raise
        return False
    return True


def _rmdir(path: Path) -> bool:
    """Whether the directory is gone; busy ones are not."""
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def _read(path: Path | str) -> str:
    try:
        with open(path) as file:  # noqa: PTH123 - some fifty a run, and pathlib takes longer than the kernel
            return file.read()
    except OSError:
        return ""


def _stands_still(directory: str) -> bool:
    """Wait for the kernel: a process is stopped on its way out of a system call, and a write may be one."""
    deadline = time.monotonic() + FREEZE_S
    while time.monotonic() < deadline:
        if "frozen 1" in _read(f"{directory}/cgroup.events") or "FROZEN" in _read(f"{directory}/freezer.state"):
            return True
        time.sleep(0.001)
    return False
