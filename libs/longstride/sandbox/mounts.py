"""mount(2), umount2(2) and mount_setattr(2): no Python module has them."""

import ctypes
import functools
import os
import struct
from pathlib import Path

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 1, 2, 4, 32, 4096
MS_SHARED = 1 << 20
MNT_DETACH, UMOUNT_NOFOLLOW = 2, 8
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
"""Numbers of system calls that this C library may not have yet; the same on every architecture."""
AT_FDCWD, AT_EMPTY_PATH, OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH = -100, 0x1000, 1, 4
MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_IDMAP = 2, 4, 1 << 20


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


def share(target: Path) -> None:
    """What is mounted below from now on appears in every namespace that has a copy of this mount."""
    _check(_libc().mount(None, os.fsencode(target), None, ctypes.c_ulong(MS_SHARED), None), target)


def attach(source: Path, target: Path, user_namespace: int) -> None:
    """Show a directory at a second place, where the namespace's ids own what has these ids, taken literally, on the file system.

    Raises:
        OSError: EINVAL or ENOSYS where the kernel cannot (5.12; for tmpfs 6.3).
    """
    tree = _call(OPEN_TREE, target, AT_FDCWD, os.fsencode(source), OPEN_TREE_CLONE | os.O_CLOEXEC)
    try:
        flags = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV
        attributes = struct.pack("=QQQQ", flags, 0, 0, user_namespace)
        _call(MOUNT_SETATTR, target, tree, b"", AT_EMPTY_PATH, attributes, len(attributes))
        _call(MOVE_MOUNT, target, tree, b"", AT_FDCWD, os.fsencode(target), MOVE_MOUNT_F_EMPTY_PATH)
    finally:
        os.close(tree)


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


def _call(number: int, target: Path, *arguments: int | bytes) -> int:
    words = [ctypes.c_long(word) if isinstance(word, int) else ctypes.c_char_p(word) for word in arguments]
    result: int = _libc().syscall(ctypes.c_long(number), *words)
    _check(min(result, 0), target)
    return result


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
