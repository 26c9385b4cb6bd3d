"""A directory as a stream of bytes, between an executor and a pod. Whoever reads one trusts nothing in it.

Each entry is a line of JSON, and after a file's line its bytes; the last line counts the entries. A tar archive would keep times to the
microsecond at best, and knows links between members, devices and sparse files, which nobody wants here.

The same code runs inside the pod, on whatever Python its image has (3.8 or newer): it imports the standard library alone.
"""

# Names are whatever bytes an agent chose, reached through directory descriptors: pathlib knows neither.
# ruff: noqa: PTH101, PTH208

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

MAX_DEPTH = 64
"""Levels of directories that are entered, as for every workspace; the one below is sent empty, and tells that there was more."""
MAX_LINE = 32 << 10
"""Bytes of an entry's line: a path and a link's target of 4 KiB each, escaped."""
CHUNK = 1 << 16
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Malformed(ValueError):
    """What came is not a directory; nothing of the entry was laid."""


class Found(NamedTuple):
    """One entry of a walk."""

    path: str
    folder: int
    """A descriptor of the directory that holds it, open until the next entry is asked for."""
    name: str
    status: os.stat_result


class Bounds(NamedTuple):
    """Where ``unpack`` stops."""

    entries: int
    bytes: int
    """Of all files together, as their lines declare them."""


class Laid(NamedTuple):
    """What ``unpack`` did."""

    entries: int
    over: str | None
    """The bound that it stopped at, one entry above: ``entries``, ``bytes`` or ``depth``."""


def pack(root: int) -> Iterator[bytes]:
    """What lies in a directory, parents before children, in pieces.

    Devices, sockets and FIFOs are left out. What the owner may not read is made readable first, and sent with the mode that it had.

    Args:
        root: its descriptor. Nobody writes there meanwhile.

    Raises:
        Malformed: a file changed while it was read.
    """
    count = 0
    for found in walk(root):
        for number, piece in enumerate(_entry(found)):
            count += number == 0
            yield piece
    yield _line({"kind": "end", "entries": count})


def walk(root: int) -> Iterator[Found]:
    """Every entry below a directory, parents before children, down to ``MAX_DEPTH``. No link is followed."""
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        descriptor = _open_folder(root, folder)
        inner = []
        try:
            for name in sorted(os.listdir(descriptor), key=os.fsencode):
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                yield Found(folder + name, descriptor, name, status)
                if stat.S_ISDIR(status.st_mode) and folder.count("/") + 1 < MAX_DEPTH:
                    inner.append(folder + name + "/")
        finally:
            os.close(descriptor)
        waiting.extend(reversed(inner))


def pack_files(files: Mapping[str, bytes], mode: int) -> Iterator[bytes]:
    """Contents by relative path, and the directories they need."""
    folders: set[str] = set()
    for path in sorted(files):
        parts = path.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            folder = "/".join(parts[:depth])
            if folder not in folders:
                folders.add(folder)
                yield _line({"kind": "dir", "path": folder, "mode": 0o755})
        yield _line({"kind": "file", "path": path, "mode": mode, "size": len(files[path]), "mtime_ns": 0})
        yield files[path]
    yield _line({"kind": "end", "entries": len(folders) + len(files)})


def unpack(stream: BinaryIO, root: int, bounds: Bounds) -> Laid:
    """Lay what comes into an empty directory.

    Every path is made new in a directory that this call made, so no link is ever followed. One entry above a bound the stream is left: a
    file that is too large is a hole of its declared size, so that whoever counts the directory finds the same.

    Args:
        stream: it is read to the end of the parcel, or to a bound.
        root: descriptor of the directory; nobody else writes there.
        bounds: of all that is laid.

    Raises:
        Malformed: a name that leads elsewhere, an entry twice, a kind, number or end that is none.
    """
    unpacking = _Unpacking(stream, root, bounds)
    try:
        over = unpacking.all()
    finally:
        unpacking.set_modes()
    return Laid(unpacking.count, over)


class _Unpacking:
    def __init__(self, stream: BinaryIO, root: int, bounds: Bounds) -> None:
        self.stream, self.root, self.bounds = stream, root, bounds
        self.count = self.bytes = 0
        self.modes: dict[str, int] = {"": -1}
        self.makers = {"dir": self._make_dir, "file": self._make_file, "link": self._make_link}

    def all(self) -> str | None:
        while True:
            entry = _read_line(self.stream)
            if entry["kind"] == "end":
                if _number(entry, "entries", 1 << 40) != self.count:
                    raise Malformed(f"{self.count} entries came and {entry['entries']} were meant")
                return None
            over = self._lay(entry)
            self.count += 1
            over = over or ("entries" if self.count > self.bounds.entries else None)
            if over:
                return over

    def set_modes(self) -> None:
        """Last, and from the inside out: a directory that may not be written could not be filled."""
        for path in sorted((path for path in self.modes if path), key=lambda path: -path.count("/")):
            descriptor = _open_folder(self.root, path)
            try:
                os.fchmod(descriptor, self.modes[path])
            finally:
                os.close(descriptor)

    def _lay(self, entry: dict[str, Any]) -> str | None:
        maker = self.makers.get(entry["kind"])
        if maker is None:
            raise Malformed(f"an entry of kind {entry['kind'][:40]!r}")
        path = _path(entry)
        folder, _, name = path.rpartition("/")
        if folder not in self.modes:
            raise Malformed(f"{path[:200]!r} lies in no directory that came before it")
        descriptor = _open_folder(self.root, folder)
        try:
            return maker(entry, descriptor, name)
        except FileExistsError as error:
            raise Malformed(f"{path[:200]!r} came twice") from error
        finally:
            os.close(descriptor)

    def _make_dir(self, entry: dict[str, Any], folder: int, name: str) -> str | None:
        os.mkdir(name, 0o700, dir_fd=folder)
        self.modes[entry["path"]] = _number(entry, "mode", 0o7777) & 0o777
        return "depth" if entry["path"].count("/") >= MAX_DEPTH else None

    def _make_link(self, entry: dict[str, Any], folder: int, name: str) -> str | None:
        target = entry.get("target")
        if not isinstance(target, str) or not target or "\0" in target or len(target) > 4095:
            raise Malformed(f"{entry['path'][:200]!r} is a link to nothing")
        os.symlink(target, name, dir_fd=folder)
        return None

    def _make_file(self, entry: dict[str, Any], folder: int, name: str) -> str | None:
        size, mode = _number(entry, "size", 1 << 62), _number(entry, "mode", 0o7777) & 0o777
        time = _number(entry, "mtime_ns", 1 << 63)
        self.bytes += size
        descriptor = os.open(name, WRITE_FLAGS, 0o600, dir_fd=folder)
        try:
            over = "bytes" if self.bytes > self.bounds.bytes else None
            if over:
                # A file system may not hold the number that was declared; one above the bound says as much.
                os.ftruncate(descriptor, min(size, self.bounds.bytes + 1))
            else:
                _copy(self.stream, descriptor, size)
            os.fchmod(descriptor, mode)
            os.utime(descriptor, ns=(time, time))
        finally:
            os.close(descriptor)
        return over


def _entry(found: Found) -> Iterator[bytes]:
    path, status = found.path, found.status
    mode = stat.S_IMODE(status.st_mode) & 0o777
    if stat.S_ISLNK(status.st_mode):
        yield _line({"kind": "link", "path": path, "target": os.readlink(found.name, dir_fd=found.folder)})
    elif stat.S_ISDIR(status.st_mode):
        _allow(found, mode, 0o700)
        yield _line({"kind": "dir", "path": path, "mode": mode})
    elif stat.S_ISREG(status.st_mode):
        _allow(found, mode, 0o400)
        size, time = status.st_size, status.st_mtime_ns
        yield _line({"kind": "file", "path": path, "mode": mode, "size": size, "mtime_ns": time})
        yield from _content(found)


def _content(found: Found) -> Iterator[bytes]:
    descriptor = os.open(found.name, READ_FLAGS, dir_fd=found.folder)
    try:
        left = found.status.st_size
        while left and (data := os.read(descriptor, min(CHUNK, left))):
            left -= len(data)
            yield data
        if left or os.read(descriptor, 1) or os.fstat(descriptor).st_ino != found.status.st_ino:
            raise Malformed(f"{found.path[:200]!r} changed while it was read")
    finally:
        os.close(descriptor)


def _allow(found: Found, mode: int, wanted: int) -> None:
    """Not through a link that took its place: the descriptor is of what was looked at."""
    if mode & wanted == wanted or os.geteuid() == 0:
        return
    descriptor = os.open(found.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=found.folder)
    try:
        os.chmod(f"/proc/self/fd/{descriptor}", mode | wanted)
    finally:
        os.close(descriptor)


def _open_folder(root: int, path: str) -> int:
    """From descriptor to descriptor: no link is followed."""
    descriptor = os.dup(root)
    for part in path.split("/"):
        if not part:
            continue
        try:
            inner = os.open(part, FOLDER_FLAGS, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def _read_line(stream: BinaryIO) -> dict[str, Any]:
    line = stream.readline(MAX_LINE + 1)
    if not line.endswith(b"\n"):
        raise Malformed("it ends in the middle" if len(line) <= MAX_LINE else f"a line of more than {MAX_LINE} bytes")
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Malformed("a line that is no JSON") from error
    if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str):
        raise Malformed("a line that is no entry")
    return entry


def _path(entry: dict[str, Any]) -> str:
    """Relative, of plain names that the system can take."""
    path = entry.get("path")
    if not isinstance(path, str):
        raise Malformed("an entry without a path")
    for part in path.split("/"):
        if part in ("", ".", "..") or "\0" in part or _encoded(part) > 255:
            raise Malformed(f"the path {path[:200]!r} leads elsewhere, or cannot be a file's")
    if path.count("/") > MAX_DEPTH:
        raise Malformed(f"the path {path[:200]!r} is deeper than {MAX_DEPTH}")
    return path


def _encoded(name: str) -> int:
    try:
        return len(os.fsencode(name))
    except UnicodeEncodeError as error:
        raise Malformed(f"the name {name[:200]!r} cannot be a file's") from error


def _number(entry: dict[str, Any], key: str, most: int) -> int:
    value = entry.get(key)
    if type(value) is not int or not 0 <= value <= most:
        raise Malformed(f"{key}={str(value)[:40]!r} is no number that it can be")
    return value


def _copy(stream: BinaryIO, descriptor: int, size: int) -> None:
    left = size
    while left:
        data = stream.read(min(CHUNK, left))
        if not data:
            raise Malformed("it ends in the middle of a file")
        left -= len(data)
        waiting = memoryview(data)
        while waiting:
            waiting = waiting[os.write(descriptor, waiting) :]
