"""Opening and walking files that an agent arranged: nothing outside the directory is reached, and nothing blocks.

``openat2(RESOLVE_BENEATH)`` where the kernel has it (5.6), else a walk from descriptor to descriptor that follows no link.
"""

# Names are whatever bytes an agent chose, reached through directory descriptors: pathlib knows neither.

import ctypes
import errno
import functools
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePosixPath

OPENAT2 = 437
NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH = 0x01, 0x02, 0x04, 0x08
ALWAYS = os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""A FIFO without a peer must not hang the opener, and a terminal must not become this process's own."""
TRIES = 1000
"""The kernel does not know whether a path leads out while something on it is moved. Somebody may do nothing else."""
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""What is said of a directory that is no longer there, or is something else now."""


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


@dataclass(frozen=True, slots=True)
class Found:
    """One entry of a walk."""

    path: str
    """Relative to the start; bytes that are not UTF-8 are surrogates, as ``os.fsdecode`` gives them."""
    directory: int
    """A descriptor of the directory that holds it, open until the next entry is asked for."""
    name: str
    status: os.stat_result


def open_beneath(root: int, path: str, flags: int = os.O_RDONLY, mode: int = 0, *, links: bool = False) -> int:
    """Open a path below a directory.

    Args:
        root: descriptor of the directory.
        path: relative; ``..`` and links may not lead out.
        flags: as for ``os.open``.
        mode: of a file that is created.
        links: follow symbolic links that stay inside.

    Raises:
        OSError: EXDEV where the path leads out, ELOOP at a link that is not to be followed, EAGAIN where somebody moves what is
            on it all the time, and those of open(2).
    """
    how = NO_XDEV | NO_MAGICLINKS | BENEATH | (0 if links else NO_SYMLINKS)
    descriptor = _openat2(root, path, flags | ALWAYS, mode, how)
    return descriptor if descriptor is not None else _open_by_walking(root, path, flags | ALWAYS, mode)


def walk(root: int, depth: int, *, most: int | None = None, changing: bool = False) -> Iterator[Found]:
    """Every entry below a directory, parents before children, in the order of their names' bytes.

    Args:
        root: descriptor of the directory.
        depth: how many levels are entered; a deeper directory raises OSError ENAMETOOLONG.
        most: entries of one directory that are looked at, whichever; the names of all may be more than memory holds.
        changing: somebody writes meanwhile; what goes away is left out.
    """
    passed_over = GONE if changing else ()
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        if folder.count("/") >= depth:
            raise OSError(errno.ENAMETOOLONG, f"directories are nested more than {depth} deep", folder[:200])
        try:
            descriptor = open_beneath(root, folder or ".", os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            if error.errno in passed_over:
                continue
            raise
        try:
            inner = []
            for name in _names(descriptor, most):
                try:
                    status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                except FileNotFoundError:
                    if changing:
                        continue
                    raise
                yield Found(folder + name, descriptor, name, status)
                if stat.S_ISDIR(status.st_mode):
                    inner.append(f"{folder}{name}/")
            waiting.extend(reversed(inner))
        finally:
            os.close(descriptor)


def _names(directory: int, most: int | None) -> list[str]:
    with os.scandir(directory) as entries:
        return sorted((entry.name for entry in islice(entries, most)), key=os.fsencode)


def read_all(descriptor: int, limit: int) -> bytes:
    """A regular file's bytes, at the most ``limit``."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read(limit)


def _openat2(root: int, path: str, flags: int, mode: int, resolve: int) -> int | None:
    """``None`` where the kernel, or a container's filter, has no openat2."""
    how = _OpenHow(flags, mode, resolve)
    for _ in range(TRIES):
        result: int = _syscall()(OPENAT2, root, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
        if result >= 0:
            return result
        code = ctypes.get_errno()
        if code in (errno.ENOSYS, errno.EPERM):
            return None
        if code not in (errno.EAGAIN, errno.EINTR):
            raise OSError(code, os.strerror(code), path)
    raise OSError(errno.EAGAIN, "it is moved all the time, or leased", path)


@functools.cache
def _syscall() -> "ctypes._NamedFuncPointer":
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t]
    function.restype = ctypes.c_long
    return function


def _open_by_walking(root: int, path: str, flags: int, mode: int) -> int:
    parts = PurePosixPath(path).parts or (".",)
    if ".." in parts or path.startswith("/"):
        raise OSError(errno.EXDEV, "leads outside", path)
    folder = os.dup(root)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | ALWAYS, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(parts[-1], flags | os.O_NOFOLLOW, mode, dir_fd=folder)
    finally:
        os.close(folder)
