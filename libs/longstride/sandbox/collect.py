"""From a directory that an agent arranged to a manifest. Only run when no process of the sandbox is left."""

# Names are whatever bytes an agent chose, reached through directory descriptors: pathlib knows neither.

import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import Volume
from longstride.sandbox.beneath import Found, open_beneath, walk
from longstride.sandbox.errors import WorkspaceUnusable
from longstride.sandbox.manifest import FileEntry, Manifest
from longstride.sandbox.secrets import NO_SECRETS, secret_in
from longstride.sandbox.seen import Seen

MAX_DEPTH = 64
"""Levels of directories. Tools of every kind break on deeper trees, ours included."""
MAX_PATH = 3800
"""Bytes of a path in the workspace. The kernel takes 4095 at once, and the workspace itself lies somewhere."""
MEBIBYTE = 1 << 20


@dataclass(slots=True)
class Collected:
    """What a workspace holds."""

    files: dict[str, FileEntry] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    dirs: dict[str, int] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=dict)
    """The files as they lie there."""
    folders: dict[str, int] = field(default_factory=dict)
    """The inodes of the directories."""
    left_out: list[str] = field(default_factory=list)
    """Paths with why they are not kept."""
    withheld: set[str] = field(default_factory=set)
    """Names of the secrets because of which something is left out."""
    exact: bool = True
    """Whether a restored workspace would be the same as this one, hard links and all."""
    count: int = 0
    bytes: int = 0

    @property
    def manifest(self) -> Manifest:
        """The durable part."""
        return Manifest(self.files, self.links, self.dirs)

    def copy(self) -> "Collected":
        """One that can be changed by itself."""
        return replace(
            self,
            files=dict(self.files),
            links=dict(self.links),
            dirs=dict(self.dirs),
            seen=dict(self.seen),
            folders=dict(self.folders),
            left_out=list(self.left_out),
            withheld=set(self.withheld),
        )

    def forget(self, path: str) -> None:
        """Nothing lies there any more."""
        entry = self.files.pop(path, None)
        self.bytes -= entry.size if entry else 0
        gone = [entry, self.links.pop(path, None), self.dirs.pop(path, None)]
        self.count -= sum(each is not None for each in gone)
        self.seen.pop(path, None)
        self.folders.pop(path, None)

    def leave_out(self, path: str, why: str) -> None:
        """Something is there and not kept."""
        self.left_out.append(f"{path} ({why})")
        self.exact = False

    def withhold(self, path: str, secret: str) -> None:
        """It holds a secret, and is not kept."""
        self.leave_out(path, f"holds secret {secret}")
        self.withheld.add(secret)


@dataclass(frozen=True, slots=True)
class Known:
    """What need not be read again."""

    seen: Mapping[str, Seen] = field(default_factory=dict)
    """Files whose content was known."""
    touched: frozenset[int] | None = None
    """The inodes that something happened to since. ``None``: only the times of the files tell."""
    secrets: Mapping[str, bytes] = field(default_factory=lambda: NO_SECRETS)
    """Name → value; what holds one is left out."""

    def entry(self, found: Found, honest_times: bool) -> Seen | None:
        """What is known of a file, when it cannot have changed."""
        before = self.seen.get(found.path)
        if before is None:
            return None
        if self.touched is None:
            return before if honest_times and before.still(found.status) else None
        return before if found.status.st_ino not in self.touched and before.same(found.status) else None


def collect(volume: Volume, limits: SandboxLimits, known: Known) -> Collected:
    """Walk, check and hash.

    Args:
        volume: its files belong to nobody else, and nobody writes them meanwhile.
        limits: ``files`` and ``disk_mb`` cap what is kept, sparse files counted at their declared size.
        known: what need not be read again.

    Raises:
        WorkspaceUnusable: nested too deep, too many, too large, or unreadable; the text says which.
    """
    collected = Collected()
    with reading(volume) as root:
        for found in walk(root, MAX_DEPTH, most=limits.files + 1):
            take(collected, found, limits, known, volume.honest_times)
    return collected


@contextmanager
def reading(volume: Volume) -> Iterator[int]:
    """A descriptor of the volume's root.

    Raises:
        WorkspaceUnusable: what lies there cannot be read.
    """
    root = os.open(volume.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield root
    except PermissionError as error:
        raise WorkspaceUnusable(
            f"{error.filename!r} cannot be read: give its owner the permission (chmod u+rwX)"
        ) from error
    except OSError as error:
        if error.errno not in (errno.ENAMETOOLONG, errno.EAGAIN):
            raise
        raise WorkspaceUnusable(f"the workspace cannot be kept: {error.strerror}") from error
    finally:
        os.close(root)


def take(collected: Collected, found: Found, limits: SandboxLimits, known: Known, honest_times: bool) -> None:
    """Add one entry.

    Raises:
        WorkspaceUnusable: it is one too many, or too large.
    """
    _count(collected, found, limits)
    mode, path = found.status.st_mode, found.path
    if known.secrets and (secret := secret_in(os.fsencode(path), known.secrets)):
        collected.withhold(path, secret)
    elif stat.S_ISDIR(mode):
        collected.dirs[path], collected.folders[path] = mode & 0o777, found.status.st_ino
    elif stat.S_ISLNK(mode):
        _take_link(collected, found, known)
    elif stat.S_ISREG(mode):
        _take_file(collected, found, known, honest_times)
    else:
        collected.leave_out(path, _kind(mode))


def _take_link(collected: Collected, found: Found, known: Known) -> None:
    target = os.readlink(found.name, dir_fd=found.directory)
    if secret := secret_in(os.fsencode(target), known.secrets):
        collected.withhold(found.path, secret)
    else:
        collected.links[found.path] = target


def _take_file(collected: Collected, found: Found, known: Known, honest_times: bool) -> None:
    if found.status.st_nlink > 1:
        collected.exact = False
    seen = known.entry(found, honest_times) or _hash(collected, found, known.secrets)
    if seen:
        collected.seen[found.path] = seen
        collected.files[found.path] = seen.entry


def _hash(collected: Collected, found: Found, secrets: Mapping[str, bytes]) -> Seen | None:
    """``None``: the file is left out."""
    now = time.time_ns()
    descriptor = open_beneath(found.directory, found.name)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        secret = _secret_of(file, secrets)
    if not stat.S_ISREG(status.st_mode) or status.st_ino != found.status.st_ino:
        raise WorkspaceUnusable(f"{found.path!r} changed while it was being collected")
    if secret:
        collected.withhold(found.path, secret)
        return None
    entry = FileEntry(status.st_mode & 0o777, status.st_size, status.st_mtime_ns, digest)
    return Seen(status.st_ino, status.st_ctime_ns, now, entry)


def _secret_of(file: BinaryIO, secrets: Mapping[str, bytes]) -> str | None:
    """The secret that a file holds, looked for block by block, the seams included."""
    if not secrets:
        return None
    seam, before = max(map(len, secrets.values())), b""
    file.seek(0)
    while block := file.read(MEBIBYTE):
        if secret := secret_in(before + block, secrets):
            return secret
        before = block[-seam:]
    return None


def _count(collected: Collected, found: Found, limits: SandboxLimits) -> None:
    """Before anything is read: a sparse file of a terabyte takes hours."""
    collected.count += 1
    if stat.S_ISREG(found.status.st_mode):
        collected.bytes += found.status.st_size
    if len(os.fsencode(found.path)) > MAX_PATH:
        raise WorkspaceUnusable(f"the workspace cannot be kept: a path in it is longer than {MAX_PATH} bytes")
    if collected.count > limits.files:
        raise WorkspaceUnusable(f"the workspace holds more than files={limits.files} entries")
    if collected.bytes > limits.disk_mb * MEBIBYTE:
        raise WorkspaceUnusable(f"the workspace's files declare more than disk_mb={limits.disk_mb}, holes counted")


def _kind(mode: int) -> str:
    names = {stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket", stat.S_IFBLK: "block device", stat.S_IFCHR: "device"}
    return names.get(stat.S_IFMT(mode), "special file")
