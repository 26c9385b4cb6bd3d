"""A folder for one run: its /tmp, its shared memory, and the command's own files."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import Owner
from longstride.sandbox.mounts import mount_tmpfs, unmount
from longstride.sandbox.scratch import Scratch, remove_tree

MEBIBYTE = 1 << 20
STICKY = 0o1777
READABLE = 0o555
"""Check files may be programs."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where one run's own things are."""

    path: Path
    mounted: bool

    @property
    def support(self) -> Path:
        """The command's own files."""
        return self.path / "support"

    def exhausted(self, limits: SandboxLimits) -> str | None:
        """Whether /tmp or shared memory reached its inodes; their bytes are the memory limit's."""
        if self.mounted and os.statvfs(self.path).f_favail == 0:
            return f"files={limits.files}"
        return None


@contextmanager
def run_folder(
    scratch: Scratch, *, mounted: bool, owner: Owner | None, limits: SandboxLimits, files: Mapping[str, bytes]
) -> Iterator[RunFolder]:
    """A folder that is gone afterwards."""
    folder = RunFolder(scratch.fresh("run"), mounted)
    try:
        if mounted:
            size = limits.memory_mb * MEBIBYTE + sum(map(len, files.values()))
            mount_tmpfs(folder.path, f"mode=711,size={size},nr_inodes={limits.files + 16 + 2 * len(files)}")
            _make_temporary(folder.path, owner)
        _lay(folder.support, files)
        yield folder
    finally:
        _remove(folder)


def _remove(folder: RunFolder) -> None:
    if folder.mounted and folder.path.is_mount():
        unmount(folder.path)
        folder.path.rmdir()
    else:
        remove_tree(folder.path)


def _make_temporary(path: Path, owner: Owner | None) -> None:
    for name in ("tmp", "shm"):
        (path / name).mkdir()
        (path / name).chmod(STICKY)
        if owner:
            os.chown(path / name, owner.uid, owner.gid)


def _lay(support: Path, files: Mapping[str, bytes]) -> None:
    support.mkdir()
    support.chmod(0o755)
    for name, data in files.items():
        target = support / name
        assert target.resolve().is_relative_to(support.resolve()), f"{name!r} leads outside"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(READABLE)
