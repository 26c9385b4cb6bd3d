"""Volumes: a bounded memory file system for each workspace where this process may mount one, else plain directories."""

import errno
import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import Owner, Volume
from longstride.sandbox.beneath import walk
from longstride.sandbox.collect import MAX_DEPTH, MEBIBYTE
from longstride.sandbox.identity import Identities
from longstride.sandbox.mounts import mount_tmpfs, resize_tmpfs, unmount
from longstride.sandbox.scratch import Scratch, remove_tree

PRIVATE = 0o700


class TmpfsVolumes:
    """Needs root. The kernel refuses the byte and the inode beyond the limits; a page cache is all it costs."""

    def __init__(self, scratch: Scratch, draw: Callable[[], Owner | None]) -> None:
        """
        Args:
            scratch: where they are mounted, in a folder that nobody else may enter when ``draw`` gives the same owner to all.
            draw: an owner for each.
        """
        self._scratch = scratch
        self._draw = draw

    def create(self, limits: SandboxLimits, like: Volume | None = None) -> Volume:
        """Mount a new file system that the drawn ids own."""
        owner = like.owner if like else self._draw()
        assert owner is not None, "only root mounts"
        path = self._scratch.fresh("volumes/volume")
        mount_tmpfs(path, f"{_size(limits)},mode=700,uid={owner.uid},gid={owner.gid}")
        return Volume(path, owner, bounded=True, honest_times=False)

    def fit(self, volume: Volume, limits: SandboxLimits) -> bool:
        """Remount with the new size."""
        try:
            resize_tmpfs(volume.path, _size(limits))
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return False
        return True

    def exhausted(self, volume: Volume, limits: SandboxLimits) -> str | None:
        """Read from the file system's own counters."""
        state = os.statvfs(volume.path)
        if state.f_bavail == 0:
            return f"disk_mb={limits.disk_mb}"
        return f"files={limits.files}" if state.f_favail == 0 else None

    def destroy(self, volume: Volume) -> None:
        """Unmount; the kernel drops the content at once."""
        unmount(volume.path)
        volume.path.rmdir()


class DirectoryVolumes:
    """Plain directories. No file is larger than ``disk_mb`` (RLIMIT_FSIZE); the sum is measured after each command."""

    def __init__(self, root: Path, identities: Identities | None = None) -> None:
        self._root = root
        self._identities = identities
        self._next = 0
        root.mkdir(parents=True, exist_ok=True)
        self._honest_times = times_are_honest(root)

    def create(self, limits: SandboxLimits, like: Volume | None = None) -> Volume:
        """A new, empty directory."""
        owner = like.owner if like else self._identities.draw() if self._identities else None
        path = self._fresh()
        if owner:
            os.chown(path, owner.uid, owner.gid)
        return Volume(path, owner, bounded=False, honest_times=self._honest_times)

    def fit(self, volume: Volume, limits: SandboxLimits) -> bool:
        """Measure."""
        return self.exhausted(volume, limits) is None

    def exhausted(self, volume: Volume, limits: SandboxLimits) -> str | None:
        """Count what is there, down to the depth that can be kept at all; processes of the task may be writing.

        Raises:
            OSError: ENOSPC when it is the host's disk that is full.
        """
        if os.statvfs(volume.path).f_bavail == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(volume.path))
        root = os.open(volume.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        used = files = 0
        try:
            for found in walk(root, MAX_DEPTH, most=limits.files + 1, changing=True):
                files, used = files + 1, used + found.status.st_blocks * 512
                if used > limits.disk_mb * MEBIBYTE:
                    return f"disk_mb={limits.disk_mb}"
                if files > limits.files:
                    return f"files={limits.files}"
        except OSError as error:
            if error.errno not in (errno.ENAMETOOLONG, errno.EACCES):
                raise
        finally:
            os.close(root)
        return None

    def destroy(self, volume: Volume) -> None:
        """Remove the directory and all below."""
        remove_tree(volume.path)

    def _fresh(self) -> Path:
        while True:
            self._next += 1
            path = self._root / f"volume-{self._next}"
            try:
                path.mkdir(mode=PRIVATE)
            except FileExistsError:
                continue
            return path


def _size(limits: SandboxLimits) -> str:
    """The root directory takes one inode itself."""
    return f"size={limits.disk_mb * MEBIBYTE},nr_inodes={limits.files + 1}"


def times_are_honest(folder: Path) -> bool:
    """Whether a store through a shared mapping changes a file's time here. On a tmpfs it does not, once the page was read."""
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        file.write(bytes(mmap.PAGESIZE))
        file.flush()
        os.utime(file.fileno(), ns=(0, 0))
        with mmap.mmap(file.fileno(), mmap.PAGESIZE) as page:
            page[0] += 1
            page.flush()
        return os.fstat(file.fileno()).st_mtime_ns != 0
