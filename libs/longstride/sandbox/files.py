"""Reading and writing single files of a workspace from the host's side."""

# Names are whatever bytes an agent chose, reached through directory descriptors: pathlib knows neither.

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath

from longstride.contracts.v1.environment import WORKSPACE
from longstride.sandbox.base import Volume
from longstride.sandbox.beneath import open_beneath

REASONS = {
    errno.ENOENT: "no such file or directory",
    errno.EISDIR: "it is a directory",
    errno.ENOTDIR: "a part of the path is not a directory",
    errno.EXDEV: "a link on the path leads out of the workspace",
    errno.ELOOP: "the links on the path lead in a circle, or one of them may not be followed",
    errno.ENXIO: "not a regular file",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EACCES: "its permissions do not allow this",
    errno.EINVAL: "not a name that a file can have",
    errno.ETXTBSY: "a program is running from it: stop that first",
    errno.EAGAIN: "something that runs moves what is on the path all the time",
}
"""What the agent's own arrangement can make open(2) say."""


class FileRefused(ValueError):
    """The path does not name a file that may be read or written; the text tells the agent why."""


@dataclass(frozen=True, slots=True)
class Content:
    """A file's bytes, as many as were asked for."""

    data: bytes
    size: int
    """Of the whole file."""


class WorkspaceFiles:
    """One workspace's files. Links are followed while they stay inside; FIFOs, sockets and devices are refused unopened."""

    def __init__(self, volume: Volume) -> None:
        self._volume = volume

    def read(self, path: str, limit: int) -> Content:
        """The first ``limit`` bytes.

        Raises:
            FileRefused: outside, absent, a directory, or not a regular file.
        """
        with _Opened(self._volume, relative(path), os.O_RDONLY) as descriptor:
            size = os.fstat(descriptor).st_size
            with os.fdopen(os.dup(descriptor), "rb") as file:
                return Content(file.read(limit), size)

    def write(self, path: str, data: bytes, *, append: bool = False) -> int:
        """Write a file and the directories it needs; returns its new size.

        Raises:
            FileRefused: outside, or in the way of something that is not a regular file.
            OSError: ENOSPC where the volume is full.
        """
        inside = relative(path)
        self._make_parents(inside)
        flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else 0)
        with _Opened(self._volume, inside, flags) as descriptor:
            if not append:
                os.ftruncate(descriptor, 0)
            _own(descriptor, self._volume)
            _write_all(descriptor, data)
            return os.fstat(descriptor).st_size

    def remove(self, path: str) -> None:
        """Remove a file, or a link itself; nothing when it is not there.

        Raises:
            FileRefused: outside, or a directory.
        """
        inside = PurePosixPath(relative(path))
        try:
            with (
                _Opened(self._volume, str(inside.parent), os.O_RDONLY | os.O_DIRECTORY) as folder,
                _in_words(path),
            ):
                os.unlink(inside.name, dir_fd=folder)
        except FileRefused as refused:
            if not isinstance(refused.__cause__, FileNotFoundError):
                raise

    def _make_parents(self, path: str) -> None:
        for parent in reversed(PurePosixPath(path).parents[:-1]):
            with _Opened(self._volume, str(parent.parent), os.O_RDONLY | os.O_DIRECTORY) as folder:
                try:
                    with _in_words(str(parent)):
                        os.mkdir(parent.name, 0o755, dir_fd=folder)
                except FileExistsError:
                    continue
            with _Opened(self._volume, str(parent), os.O_RDONLY | os.O_DIRECTORY) as made:
                _own(made, self._volume)


@contextmanager
def _in_words(path: str) -> Iterator[None]:
    """Of what agents can arrange, and programs of theirs that run meanwhile."""
    try:
        yield
    except OSError as error:
        if error.errno not in REASONS:
            raise
        raise FileRefused(f"{path}: {REASONS[error.errno]}") from error


class _Opened:
    """A descriptor of something inside the volume, closed at the end; what cannot be opened is refused in words."""

    def __init__(self, volume: Volume, path: str, flags: int) -> None:
        self._volume = volume
        self._path = path
        self._flags = flags
        self._descriptor = -1

    def __enter__(self) -> int:
        root = os.open(self._volume.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._descriptor = self._open(root)
        finally:
            os.close(root)
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def _open(self, root: int) -> int:
        mode = 0o644 if self._flags & os.O_CREAT else 0
        with _in_words(self._path):
            descriptor = open_beneath(root, self._path, self._flags, mode, links=True)
        if not self._flags & os.O_DIRECTORY and not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FileRefused(f"{self._path}: not a regular file")
        return descriptor


def relative(path: str) -> str:
    """``/workspace/a/b`` and ``./a/b`` → ``a/b``.

    Raises:
        FileRefused: absolute and elsewhere, or leading out.
    """
    pure = PurePosixPath(path)
    if pure.is_absolute():
        if not pure.is_relative_to(WORKSPACE):
            raise FileRefused(f"{path}: only files under {WORKSPACE} can be reached with this tool")
        pure = pure.relative_to(WORKSPACE)
    if "\x00" in path or ".." in pure.parts:
        raise FileRefused(f"{path!r}: must be a path inside {WORKSPACE}, without ..")
    if str(pure) == ".":
        raise FileRefused(f"{path!r}: names the workspace itself; a file's path is needed")
    return str(pure)


def _own(descriptor: int, volume: Volume) -> None:
    if volume.owner:
        os.fchown(descriptor, volume.owner.uid, volume.owner.gid)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
