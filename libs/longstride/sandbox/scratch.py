"""A folder on the host for one process's sandboxes, and the removal of what dead owners left.

``kill -9`` runs no cleanup: mounts, control groups and files stay. An owner holds a lock for as long as it lives, and the
kernel lets go of it whatever way it dies, so a folder whose lock can be had has no owner.
"""

import contextlib
import fcntl
import itertools
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

from longstride.contracts.ids import uuid7
from longstride.sandbox.cgroup import Cgroup, Hierarchy
from longstride.sandbox.errors import SandboxUnavailable
from longstride.sandbox.mounts import mounts_below, unmount

MARK = "LONGSTRIDE_SANDBOX"
"""The one variable in the environment of bwrap: whose sandbox it is."""
CLAIMED_S = 60.0
"""A folder without a name that is older was left by an owner that died while it made it."""
TRAVERSABLE = 0o711
"""The sandbox's ids must reach what lies below, and read no listing on the way."""


def default_root() -> Path:
    """Where scratch goes unless told otherwise; root's must not lie in a home, which other ids cannot enter."""
    if os.geteuid() == 0:
        return Path("/var/lib/longstride/sandbox")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "longstride" / "sandbox"


class Scratch:
    """This process's folder."""

    def __init__(self, root: Path, hierarchies: tuple[Hierarchy, ...] = ()) -> None:
        _make_traversable(root)
        self.hierarchies = hierarchies
        self.name = f"ls-{uuid7().hex[-16:]}"
        self.path = root / self.name
        self._lock = _claim(root, self.name, hierarchies)
        self._numbers = itertools.count(1)
        self._guard = threading.Lock()

    def fresh(self, kind: str) -> Path:
        """A new directory, e.g. ``…/run-7``."""
        with self._guard:
            path = self.path / f"{kind}-{next(self._numbers)}"
        path.mkdir(mode=TRAVERSABLE)
        path.chmod(TRAVERSABLE)
        return path

    def cgroup(self) -> Cgroup:
        """A name for a new control group that the reaper will know as this owner's."""
        with self._guard:
            return Cgroup(f"{self.name}-{next(self._numbers)}", self.hierarchies)

    def close(self) -> None:
        """Remove the folder and everything it owns."""
        remove_owned(self.path)
        os.close(self._lock)


def reap(root: Path) -> list[str]:
    """Remove what dead owners left under ``root``; returns their names."""
    reaped = []
    for unnamed in filter(_given_up, root.glob(".ls-*")):
        remove_tree(unnamed)
    for folder in sorted(root.glob("ls-*")) if root.is_dir() else []:
        lock = _try_lock(folder / "lock")
        if lock is not None:
            remove_owned(folder)
            os.close(lock)
            reaped.append(folder.name)
    return reaped


def _given_up(unnamed: Path) -> bool:
    """Whether nobody will give this folder its name any more."""
    with contextlib.suppress(FileNotFoundError):
        return time.time() - unnamed.stat().st_mtime > CLAIMED_S
    return False


def remove_owned(folder: Path) -> None:
    """Kill an owner's sandboxes, then remove their groups, mounts and files."""
    _kill_marked(folder.name)
    for group in _groups_of(folder):
        group.remove()
    for point in mounts_below(folder):
        unmount(point)
    remove_tree(folder)


def _kill_marked(name: str, patience_s: float = 5.0) -> None:
    """End the processes that were started in this owner's name; the first of a sandbox takes the others along."""
    deadline = time.monotonic() + patience_s
    while (pids := _marked(name)) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def _marked(name: str) -> list[int]:
    mark = f"{MARK}={name}".encode()
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and mark in _environment(p).split(b"\0")]


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def remove_tree(path: Path) -> None:
    """Remove a directory whatever the depth and modes of what it holds."""
    done = subprocess.run(["rm", "-rf", "--one-file-system", "--", path], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        subprocess.run(["chmod", "-R", "u+rwX", "--", path], capture_output=True, check=False)
        subprocess.run(["rm", "-rf", "--one-file-system", "--", path], capture_output=True, text=True, check=True)


def _make_traversable(root: Path) -> None:
    for folder in reversed([root, *root.parents]):
        if not folder.exists():
            folder.mkdir(mode=0o755)
            folder.chmod(0o755)
    if root.stat().st_uid != os.geteuid():
        raise SandboxUnavailable(f"{root} belongs to another user: choose a scratch folder of your own")
    root.chmod(TRAVERSABLE)
    closed = [folder for folder in root.parents if not folder.stat().st_mode & 0o001]
    if closed and os.geteuid() == 0:
        raise SandboxUnavailable(
            f"sandboxed code cannot reach {root}, because {closed[0]} lets nobody else in: choose another"
        )


def _claim(root: Path, name: str, hierarchies: tuple[Hierarchy, ...]) -> int:
    """Lock before the folder gets its name, so that a reaper never sees it unlocked."""
    unnamed = root / f".{name}"
    unnamed.mkdir(mode=TRAVERSABLE)
    unnamed.chmod(TRAVERSABLE)
    (unnamed / "cgroups.json").write_text(
        json.dumps([[h.version, sorted(h.controllers), str(h.base)] for h in hierarchies])
    )
    lock = _try_lock(unnamed / "lock", create=True)
    assert lock is not None, "nobody else knows this folder"
    unnamed.rename(root / name)
    return lock


def _try_lock(path: Path, *, create: bool = False) -> int | None:
    """A locked descriptor, or ``None`` when a living owner holds it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _groups_of(folder: Path) -> list[Cgroup]:
    record = folder / "cgroups.json"
    rows = json.loads(record.read_text()) if record.exists() else []
    hierarchies = tuple(Hierarchy(version, frozenset(names), Path(base)) for version, names, base in rows)
    found = {path.name for h in hierarchies for path in h.base.glob(f"{folder.name}-*")}
    return [Cgroup(name, hierarchies) for name in sorted(found)]
