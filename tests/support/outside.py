"""What the host shows of itself and of a sandbox's processes, whatever the sandbox's own kernel says inside."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

SETTINGS = ("kernel/hostname", "kernel/domainname", "kernel/core_pattern", "kernel/modprobe", "kernel/tainted")
FILES = ("/etc/passwd", "/etc/shadow", "/etc/group", "/proc/swaps")
DEVICES = ("null", "zero", "full", "random", "mem", "kmsg", "port", "fuse", "kvm", "tty", "console")
TRACES = (
    "/owned",
    "/usr/owned",
    "/usr/bin/owned",
    "/lib/owned",
    "/dev/owned",
    "/run/owned",
    "/dev/shm/left",
    "/tmp/left",
)
"""What payloads try to leave."""
IPC_KEY = 0x4C53
"""Theirs, too: of shared memory, semaphores and queues."""
SEPARATE = frozenset({"ipc", "mnt", "net", "uts"})
"""Namespaces that code shares with the host under no backend."""
SYS_ADMIN = 1 << 21


@dataclass(frozen=True, slots=True)
class Seen:
    """One process of a sandbox."""

    name: str
    """Of its program, as it calls itself."""
    uid: int
    oom_score_adj: int
    filtered: bool
    """Whether its calls to the host's kernel go through a filter."""
    no_new_privileges: bool
    capabilities: int
    shared: frozenset[str]
    """Namespaces that are the host's."""

    @property
    def builds(self) -> bool:
        """Whether it is the program that made the sandbox, which runs no code of it and stays where it was."""
        return self.name in ("bwrap", "runsc", "runc") and "net" in self.shared


def processes(groups: Iterable[Path]) -> list[Seen]:
    """All in these control groups."""
    pids = {pid for group in groups for pid in _read(group / "cgroup.procs").split()}
    return [seen for pid in sorted(pids, key=int) if (seen := _see(Path("/proc", pid)))]


def most_tasks(groups: Iterable[Path]) -> int:
    """Processes and threads of the fullest of these control groups."""
    return max((int(_read(group / "pids.current") or 0) for group in groups), default=0)


@contextmanager
def unharmed() -> Iterator[None]:
    """Fails when the body changed something of the host that no sandbox may."""
    before = _state()
    yield
    assert _state() == before, "the host was reached"


def _state() -> dict[str, object]:
    status = _status(Path("/proc/self"))
    return {
        **{name: _read(Path("/proc/sys", name)) for name in SETTINGS},
        **{name: sha256(Path(name).read_bytes()).hexdigest() for name in FILES if Path(name).exists()},
        **{f"/dev/{name}": _device(Path("/dev", name)) for name in DEVICES},
        **{name: os.path.lexists(name) for name in TRACES},
        **{f"sysvipc/{kind}": _keyed(kind) for kind in ("shm", "msg", "sem")},
        **{f"oom of {pid}": _read(Path("/proc", pid, "oom_score_adj")) for pid in ("1", "self", str(os.getppid()))},
        **{name: status[name] for name in ("Uid", "Gid", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")},
        "namespaces": _namespaces(Path("/proc/self")),
    }


def _device(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status.st_mode, status.st_rdev


def _keyed(kind: str) -> list[str]:
    rows = (line.split() for line in _read(Path("/proc/sysvipc", kind)).splitlines())
    return [row[1] for row in rows if row and row[0] == str(IPC_KEY)]


def _see(process: Path) -> Seen | None:
    """Nothing when it has gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        status, own = _status(process), _namespaces(Path("/proc/self"))
        return Seen(
            name=Path(_read(process / "cmdline").partition("\0")[0] or status["Name"]).name,
            uid=int(status["Uid"].split()[0]),
            oom_score_adj=int((process / "oom_score_adj").read_text()),
            filtered=status["Seccomp"] == "2",
            no_new_privileges=status["NoNewPrivs"] == "1",
            capabilities=int(status["CapEff"], 16),
            shared=frozenset(name for name, target in _namespaces(process).items() if own.get(name) == target),
        )
    return None


def _status(process: Path) -> dict[str, str]:
    lines = (line.split(":", 1) for line in (process / "status").read_text().splitlines())
    return {name: value.strip() for name, value in lines}


def _namespaces(process: Path) -> dict[str, str]:
    return {path.name: str(path.readlink()) for path in (process / "ns").iterdir()}


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
