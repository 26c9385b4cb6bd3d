"""A folder for one sandbox: its /tmp, its shared memory, the place of its workspace, and the command's own files."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import SUPPORT, Owner, Volume
from longstride.sandbox.errors import SandboxFailed
from longstride.sandbox.mounts import attach, bind_read_only, mount_tmpfs, resize_tmpfs, share, unmount
from longstride.sandbox.scratch import Scratch, remove_tree

MEBIBYTE = 1 << 20
STICKY = 0o1777
READABLE = 0o555
"""Check files may be programs."""
OWN_INODES = 24
PRIVATE, ENTERED = 0o700, 0o710
"""Of a run's folder: for its maker alone; or for the group of who builds the sandbox as well."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where one sandbox's own things are."""

    path: Path
    mounted: bool
    """Whether it is a file system of its own, which the sandbox sees change."""

    @property
    def support(self) -> Path:
        """The command's own files."""
        return self.path / "support"

    @property
    def workspace(self) -> Path:
        """Where a workspace appears in a sandbox that has none yet."""
        return self.path / "workspace"

    def show(self, folders: Mapping[str, Path]) -> dict[str, Path]:
        """Make places for directories of the host among the command's own files.

        Returns:
            Path inside → a place from which any ids can bind the directory, which may lie in a closed home.

        Raises:
            SandboxFailed: one is not there, or is no directory.
        """
        return {f"{SUPPORT}/{name}": self._place(name, directory) for name, directory in folders.items()}

    def _place(self, name: str, directory: Path) -> Path:
        (self.support / name).mkdir(parents=True)
        if not directory.is_dir():
            raise SandboxFailed(f"{directory} cannot be shown in a sandbox: it is no directory of this host")
        if not self.mounted:
            return directory.resolve()
        place = self.path / "folders" / name
        place.mkdir(parents=True)
        bind_read_only(directory, place)
        return place

    def attach(self, volume: Volume, user_namespace: int) -> None:
        """Show the workspace there, its files owned by the namespace's ids."""
        attach(volume.path, self.workspace, user_namespace)

    def detach(self) -> None:
        """Take it off again."""
        if self.workspace.is_mount():
            unmount(self.workspace)

    def fill(self, limits: SandboxLimits, files: Mapping[str, bytes]) -> None:
        """Lay the command's files, and bound what it may add."""
        if self.mounted:
            resize_tmpfs(self.path, _size(limits, files))
        lay(self.support, files)

    def exhausted(self, limits: SandboxLimits) -> str | None:
        """Whether /tmp and shared memory together reached their inodes, or their bytes, which are the memory limit's."""
        if not self.mounted:
            return None
        state = os.statvfs(self.path)
        if state.f_bavail == 0:
            return f"memory_mb={limits.memory_mb}"
        return f"files={limits.files}" if state.f_favail == 0 else None


@contextmanager
def run_folder(
    scratch: Scratch, *, mounted: bool, owner: Owner | None, builder: Owner | None, limits: SandboxLimits
) -> Iterator[RunFolder]:
    """A folder that is gone afterwards.

    Args:
        scratch: where.
        mounted: as a file system of its own.
        owner: whom the code is on the host.
        builder: who builds the sandbox, and has to reach what it is built from; ``None``: whoever this process is.
        limits: of the sandbox.
    """
    folder = RunFolder(scratch.fresh("run"), mounted)
    try:
        if mounted:
            mount_tmpfs(folder.path, _size(limits, {}))
            share(folder.path)
        _let_in(folder.path, builder)
        if mounted:
            _make_temporary(folder.path, owner)
            folder.workspace.mkdir()
            folder.workspace.chmod(0o755)
        folder.support.mkdir()
        folder.support.chmod(0o755)
        yield folder
    finally:
        _remove(folder)


def lay(support: Path, files: Mapping[str, bytes]) -> None:
    """Write a command's files; readable by all, because the sandbox has ids of its own."""
    for name, data in files.items():
        target = support / name
        assert target.resolve().is_relative_to(support.resolve()), f"{name!r} leads outside"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(READABLE)


def _size(limits: SandboxLimits, files: Mapping[str, bytes]) -> str:
    size = limits.memory_mb * MEBIBYTE + sum(map(len, files.values()))
    return f"size={size},nr_inodes={limits.files + OWN_INODES + 2 * len(files)}"


def _remove(folder: RunFolder) -> None:
    if folder.mounted and folder.path.is_mount():
        folder.detach()
        unmount(folder.path)
        folder.path.rmdir()
    else:
        remove_tree(folder.path)


def _let_in(path: Path, builder: Owner | None) -> None:
    """Nobody else on this host: what is below may be read by all, or written, and where it is mounted is no secret."""
    if builder:
        os.chown(path, -1, builder.gid)
    path.chmod(ENTERED if builder else PRIVATE)


def _make_temporary(path: Path, owner: Owner | None) -> None:
    for name in ("tmp", "shm"):
        (path / name).mkdir()
        (path / name).chmod(STICKY)
        if owner:
            os.chown(path / name, owner.uid, owner.gid)
