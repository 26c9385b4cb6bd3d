"""mount(2) and umount2(2): no Python module has them."""

import ctypes
import functools
import os
from pathlib import Path

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 1, 2, 4, 32, 4096
MNT_DETACH, UMOUNT_NOFOLLOW = 2, 8


def mount_tmpfs(target: Path, options: str) -> None:
    """A memory file system without devices or set-uid programs, e.g. with ``size=1048576,nr_inodes=100``."""
    _mount("longstride", target, "tmpfs", MS_NOSUID | MS_NODEV, options)


def resize_tmpfs(target: Path, options: str) -> None:
    """Change ``size`` and ``nr_inodes``; OSError EINVAL when more is already held."""
    _mount("longstride", target, "tmpfs", MS_REMOUNT | MS_NOSUID | MS_NODEV, options)


def set_read_only(target: Path, read_only: bool) -> None:
    """Make a memory file system read-only, or writable again; OSError EBUSY while a file on it is open for writing."""
    _mount("longstride", target, "tmpfs", MS_REMOUNT | MS_NOSUID | MS_NODEV | (MS_RDONLY if read_only else 0), None)


def bind_read_only(source: Path, target: Path) -> None:
    """Show a directory at a second place, where it cannot be written."""
    _mount(str(source), target, None, MS_BIND, None)
    _mount(str(source), target, None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, None)


def unmount(target: Path) -> None:
    """Take a mount off the tree at once; the kernel frees it when its last user is gone."""
    _check(_libc().umount2(os.fsencode(target), MNT_DETACH | UMOUNT_NOFOLLOW), target)


def mounts_below(directory: Path) -> list[Path]:
    """Mount points under a directory, the deepest first."""
    points = (_unescape(line.split(" ")[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return sorted((p for p in map(Path, points) if directory in p.parents), key=lambda p: -len(p.parts))


def _mount(source: str, target: Path, kind: str | None, flags: int, options: str | None) -> None:
    result = _libc().mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode() if options else None,
    )
    _check(result, target)


def _check(result: int, target: Path) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(target))


def _unescape(path: str) -> str:
    """mountinfo writes space, tab, newline and backslash as octal."""
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(octal, character)
    return path


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
