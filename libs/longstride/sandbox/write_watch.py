"""Which files of a memory file system were opened for writing: there, times do not tell (``Volume.honest_times``).

fanotify(7) reports every change of the whole file system, through whatever mount. What it cannot report before it happens
is the store through a mapping; but whoever maps a file for writing has it open for writing, and its last close is
reported. A file system that can be made read-only has no file open for writing, not even one that waits in a socket: so
everything has been reported by then (``frozen``).
"""

import ctypes
import errno
import functools
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from longstride.sandbox.mounts import set_read_only

CLOEXEC, NONBLOCK, REPORT_FID = 0x1, 0x2, 0x200
ADD, FILESYSTEM = 0x1, 0x100
MODIFY, ATTRIB, CLOSE_WRITE, MOVED, CREATE, DELETE, ON_DIRECTORIES = 0x2, 0x4, 0x8, 0xC0, 0x100, 0x200, 0x40000000
EVERYTHING = MODIFY | ATTRIB | CLOSE_WRITE | MOVED | CREATE | DELETE | ON_DIRECTORIES
OVERFLOW = 0x4000
"""More happened than the kernel keeps (16,384 files, by its default)."""
EVENT = struct.Struct("=IBBHQii")
"""Of fanotify_event_metadata: length, version, reserved, length of this part, mask, descriptor, process."""
HANDLE_AT = EVENT.size + 4 + 8
"""A header and the file system's id come before the file's handle."""
BUFFER = 1 << 16
AT_FDCWD = -100
GONE = 0
"""Stands for the inode of something that was removed; no inode has it."""


class WriteWatch:
    """What happens on one file system, from now on."""

    def __init__(self, root: Path) -> None:
        """
        Args:
            root: anywhere on the file system.

        Raises:
            OSError: EPERM, EINVAL, ENODEV, EMFILE and such: it cannot be had here.
        """
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._events = _checked(_libc().fanotify_init(CLOEXEC | NONBLOCK | REPORT_FID, os.O_RDONLY))
        except OSError:
            os.close(self._root)
            raise
        try:
            _checked(_libc().fanotify_mark(self._events, ADD | FILESYSTEM, EVERYTHING, AT_FDCWD, os.fsencode(root)))
        except OSError:
            self.close()
            raise

    @classmethod
    def start(cls, root: Path) -> "WriteWatch | None":
        """``None`` where the kernel, or this process's privileges, do not give one."""
        with suppress(OSError):
            return cls(root)
        return None

    def touched(self) -> frozenset[int] | None:
        """The inodes that anything happened to since the last call; empty: nothing at all. ``None``: it is not known."""
        found: set[int] = set()
        known = True
        for event in self._read():
            mask = EVENT.unpack_from(event)[4]
            if mask & OVERFLOW:
                known = False
            elif known:
                inode = self._inode(event[HANDLE_AT:])
                known = inode is not None
                found.add(inode or GONE)
        return frozenset(found) if known else None

    def close(self) -> None:
        """Watch no longer."""
        os.close(self._events)
        os.close(self._root)

    def _read(self) -> Iterator[bytes]:
        while True:
            try:
                data = os.read(self._events, BUFFER)
            except BlockingIOError:
                return
            while data:
                length = EVENT.unpack_from(data)[0]
                yield data[:length]
                data = data[length:]

    def _inode(self, handle: bytes) -> int | None:
        try:
            descriptor = _checked(_libc().open_by_handle_at(self._root, handle, os.O_PATH | os.O_CLOEXEC))
        except OSError as error:
            return GONE if error.errno == errno.ESTALE else None
        try:
            return os.fstat(descriptor).st_ino
        finally:
            os.close(descriptor)


@contextmanager
def frozen(root: Path) -> Iterator[bool]:
    """Make a file system read-only for a while; gives ``False`` where something on it is still open for writing."""
    try:
        set_read_only(root, True)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        yield False
        return
    try:
        yield True
    finally:
        set_read_only(root, False)


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fanotify_mark.argtypes = [ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p]
    return libc
