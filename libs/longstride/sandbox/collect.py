"""From a directory that an agent arranged to a manifest. Only run when no process of the sandbox is left."""

# Names are whatever bytes an agent chose, reached through directory descriptors: pathlib knows neither.

import errno
import hashlib
import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import Volume
from longstride.sandbox.beneath import Found, open_beneath, walk
from longstride.sandbox.errors import WorkspaceUnusable
from longstride.sandbox.manifest import FileEntry, Manifest

MAX_DEPTH = 64
"""Levels of directories. Tools of every kind break on deeper trees, ours included."""
MEBIBYTE = 1 << 20
CLOCK_GRAIN_NS = 100_000_000
"""Times of files tick slowly. A file written this shortly before it was hashed may have been written again in the same tick."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A file as it was when it was hashed."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    hashed_ns: int
    entry: FileEntry

    def still(self, status: os.stat_result) -> bool:
        """Whether the file cannot have changed since."""
        now = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        return (
            now == (self.inode, self.size, self.mtime_ns, self.ctime_ns)
            and self.ctime_ns < self.hashed_ns - CLOCK_GRAIN_NS
            and stat.S_IMODE(status.st_mode) & 0o777 == self.entry.mode
        )


@dataclass(slots=True)
class Collected:
    """What a workspace holds."""

    files: dict[str, FileEntry] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    dirs: dict[str, int] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """Paths with why they are not kept."""
    exact: bool = True
    """Whether a restored workspace would be the same as this one, hard links and all."""
    count: int = 0
    bytes: int = 0

    @property
    def manifest(self) -> Manifest:
        """The durable part."""
        return Manifest(self.files, self.links, self.dirs)


def collect(volume: Volume, limits: SandboxLimits, known: Mapping[str, Seen]) -> Collected:
    """Walk, check and hash.

    Args:
        volume: its files belong to nobody else, and nobody writes them meanwhile.
        limits: ``files`` and ``disk_mb`` cap what is kept, sparse files counted at their declared size.
        known: files that were hashed before; they are not read again where the volume's times can be trusted.

    Raises:
        WorkspaceUnusable: nested too deep, too many, too large, or unreadable; the text says which.
    """
    collected = Collected()
    root = os.open(volume.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for found in walk(root, MAX_DEPTH):
            _count(collected, found, limits)
            _take(collected, found, known if volume.honest_times else {})
    except PermissionError as error:
        raise WorkspaceUnusable(
            f"{error.filename} cannot be read: give its owner the permission (chmod u+rwX)"
        ) from error
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise WorkspaceUnusable(f"the workspace cannot be kept: {error.strerror}") from error
    finally:
        os.close(root)
    return collected


def _take(collected: Collected, found: Found, known: Mapping[str, Seen]) -> None:
    mode = found.status.st_mode
    if stat.S_ISDIR(mode):
        collected.dirs[found.path] = mode & 0o777
    elif stat.S_ISLNK(mode):
        collected.links[found.path] = os.readlink(found.name, dir_fd=found.directory)
    elif stat.S_ISREG(mode):
        _take_file(collected, found, known)
    else:
        collected.left_out.append(f"{found.path} ({_kind(mode)})")
        collected.exact = False


def _take_file(collected: Collected, found: Found, known: Mapping[str, Seen]) -> None:
    if found.status.st_nlink > 1:
        collected.exact = False
    before = known.get(found.path)
    seen = before if before and before.still(found.status) else None
    collected.seen[found.path] = seen or _hash(found)
    collected.files[found.path] = collected.seen[found.path].entry


def _hash(found: Found) -> Seen:
    now = time.time_ns()
    descriptor = open_beneath(found.directory, found.name)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if not stat.S_ISREG(status.st_mode) or status.st_ino != found.status.st_ino:
        raise WorkspaceUnusable(f"{found.path} changed while it was being collected")
    entry = FileEntry(status.st_mode & 0o777, status.st_size, status.st_mtime_ns, digest)
    return Seen(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, now, entry)


def _count(collected: Collected, found: Found, limits: SandboxLimits) -> None:
    """Before anything is read: a sparse file of a terabyte takes hours."""
    collected.count += 1
    if stat.S_ISREG(found.status.st_mode):
        collected.bytes += found.status.st_size
    if collected.count > limits.files:
        raise WorkspaceUnusable(f"the workspace holds more than files={limits.files} entries")
    if collected.bytes > limits.disk_mb * MEBIBYTE:
        raise WorkspaceUnusable(f"the workspace's files declare more than disk_mb={limits.disk_mb}, holes counted")


def _kind(mode: int) -> str:
    names = {stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket", stat.S_IFBLK: "block device", stat.S_IFCHR: "device"}
    return names.get(stat.S_IFMT(mode), "special file")
