"""From what a directory held, and what was touched since, to what it holds: the rest of it is not looked at.

A change of what a directory holds touches the directory; a change of a file touches the file (``WriteWatch``). So touched
directories are listed again, touched files are read again, and what is new in a directory is walked as a whole.
"""

# Names are whatever bytes an agent chose, reached through directory descriptors: pathlib knows neither.
# ruff: noqa: PTH208

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import Volume
from longstride.sandbox.beneath import Found, open_beneath, walk
from longstride.sandbox.collect import MAX_DEPTH, Collected, Known, reading, take

REPLACED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def recollect(volume: Volume, limits: SandboxLimits, before: Collected, known: Known) -> Collected:
    """What ``collect`` would find.

    Args:
        volume: nobody writes it meanwhile.
        limits: as for ``collect``.
        before: all that lay there when ``known.touched`` began.
        known: ``touched`` is not ``None``.

    Raises:
        WorkspaceUnusable: as ``collect``.
    """
    touched = known.touched
    assert touched is not None, "what was touched is known"
    folders = sorted(path for path, inode in before.folders.items() if inode in touched)
    with reading(volume) as root:
        again = _Again(root, limits, known, before, before.copy())
        for folder in ["", *folders] if os.fstat(root).st_ino in touched else folders:
            again.list_folder(folder)
        for path in [path for path, seen in before.seen.items() if seen.inode in touched]:
            again.read_file(path)
    return again.now


@dataclass
class _Again:
    root: int
    limits: SandboxLimits
    known: Known
    before: Collected
    now: Collected

    @cached_property
    def _inner(self) -> Mapping[str, list[str]]:
        """What lay in each directory."""
        inner: dict[str, list[str]] = {}
        for path in chain(self.before.files, self.before.links, self.before.dirs):
            inner.setdefault(path.rpartition("/")[0], []).append(path)
        return inner

    def list_folder(self, folder: str) -> None:
        """Where it is gone, or is another, what holds it is touched, too, and tells."""
        with self._opened(folder) as descriptor:
            if descriptor is None:
                return
            if folder:
                self.now.dirs[folder] = stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o777
            names = sorted(os.listdir(descriptor), key=os.fsencode)
            paths = {f"{folder}/{name}" if folder else name: name for name in names}
            for path in self._inner.get(folder, ()):
                if path not in paths:
                    self._forget(path)
            for path, name in paths.items():
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if not self._same(path, status):
                    self._take(Found(path, descriptor, name, status))

    def read_file(self, path: str) -> None:
        """Unless it is gone, or was taken anew already."""
        if self.now.seen.get(path) is not self.before.seen[path]:
            return
        folder, _, name = path.rpartition("/")
        with self._opened(folder) as descriptor:
            assert descriptor is not None, "a file that is there lies in a directory"
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            self._take(Found(path, descriptor, name, status))

    def _same(self, path: str, status: os.stat_result) -> bool:
        """Whether this is what lay there; whether a file was written is another question."""
        if stat.S_ISDIR(status.st_mode):
            return self.now.folders.get(path) == status.st_ino
        seen = self.now.seen.get(path)
        return stat.S_ISREG(status.st_mode) and seen is not None and seen.inode == status.st_ino

    def _take(self, found: Found) -> None:
        self._forget(found.path)
        self._add(found)
        if stat.S_ISDIR(found.status.st_mode):
            depth = MAX_DEPTH - found.path.count("/") - 1
            inner = open_beneath(found.directory, found.name, os.O_RDONLY | os.O_DIRECTORY)
            try:
                for each in walk(inner, depth):
                    self._add(replace(each, path=f"{found.path}/{each.path}"))
            finally:
                os.close(inner)

    def _add(self, found: Found) -> None:
        take(self.now, found, self.limits, self.known, honest_times=False)

    def _forget(self, path: str) -> None:
        if path in self.now.dirs:
            for inner in self._inner.get(path, ()):
                self._forget(inner)
        self.now.forget(path)

    @contextmanager
    def _opened(self, folder: str) -> Iterator[int | None]:
        try:
            descriptor = open_beneath(self.root, folder or ".", os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            if error.errno not in REPLACED:
                raise
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)
