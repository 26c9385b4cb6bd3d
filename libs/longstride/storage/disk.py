"""Artifacts on disk: one file an object, whole or absent whatever dies in between."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from longstride.contracts.artifact import ArtifactRef
from longstride.storage.artifacts import StoredObject, address, is_fresh, path_of, verified
from longstride.storage.errors import ArtifactMissing, StorageError, StorageFull, StorageUnavailable

_UNFINISHED = ".unfinished"
_UNFINISHED_FOR = timedelta(days=1)
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class DiskArtifacts:
    """An ``ArtifactStore`` in a folder. Several processes may share it."""

    def __init__(self, root: Path | str) -> None:
        """Nothing is touched yet.

        Args:
            root: the folder; it is made when missing, readable by its owner alone.
        """
        self._root = Path(root)

    def put(self, data: bytes, *, session: str, kind: str, media_type: str = "application/octet-stream") -> ArtifactRef:
        """Store; the bytes and the name are on the disk on return."""
        ref = address(data, session, kind, media_type)
        path = self._path(ref.key)
        with self._translated(f"write {ref.key}"):
            if not self._kept(path, len(data)):
                self._write(path, data)
        return ref

    def get(self, ref: ArtifactRef) -> bytes:
        """Read, and check size and hash."""
        try:
            with self._translated(f"read {ref.key}", absent=_ABSENT):
                return verified(ref, self._path(ref.key).read_bytes())
        except _ABSENT as error:
            raise ArtifactMissing(f"no artifact lies under {ref.key} in {self._root}") from error

    def exists(self, ref: ArtifactRef) -> bool:
        """Whether an object lies there."""
        with self._translated(f"look for {ref.key}"):
            return self._path(ref.key).is_file()

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Objects whose key begins with ``prefix``."""
        with self._translated(f"list {prefix or 'everything'}"):
            yield from self._walk(self._root, "", prefix)

    def delete(self, key: str) -> None:
        """Remove an object."""
        with self._translated(f"delete {key}"), suppress(*_ABSENT):
            self._path(key).unlink()

    def check(self) -> None:
        """Make the folder and write into it; remove what writers that died left unfinished."""
        with self._translated("use it"):
            self._make(self._root)
            unfinished = self._root / _UNFINISHED
            self._make(unfinished)
            probe = unfinished / uuid4().hex
            probe.write_bytes(b"ready")
            probe.unlink()
            for left in unfinished.iterdir():
                if _modified(left.stat()) < datetime.now(UTC) - _UNFINISHED_FOR:
                    left.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._root.joinpath(*path_of(key))

    def _kept(self, path: Path, size: int) -> bool:
        """Whether the object is there already; then it counts as modified now."""
        try:
            found = path.stat()
            if found.st_size == size and not is_fresh(_modified(found)):
                os.utime(path)
        except _ABSENT:
            return False
        return found.st_size == size

    def _write(self, path: Path, data: bytes) -> None:
        self._make(path.parent)
        self._make(self._root / _UNFINISHED)
        unfinished = self._root / _UNFINISHED / uuid4().hex
        try:
            with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        _sync(path.parent)

    def _make(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self._make(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            _sync(folder.parent)

    def _walk(self, folder: Path, under: str, prefix: str) -> Iterator[StoredObject]:
        for path, is_folder in self._entries(folder):
            key = f"{under}{path.name}/" if is_folder else f"{under}{path.name}"
            if is_folder and key != f"{_UNFINISHED}/" and (key.startswith(prefix) or prefix.startswith(key)):
                yield from self._walk(path, key, prefix)
            elif not is_folder and key.startswith(prefix):
                with suppress(FileNotFoundError):  # deleted meanwhile
                    found = path.stat()
                    yield StoredObject(key, found.st_size, _modified(found))

    def _entries(self, folder: Path) -> Sequence[tuple[Path, bool]]:
        try:
            with os.scandir(folder) as entries:
                return [(Path(entry.path), entry.is_dir(follow_symlinks=False)) for entry in entries]
        except _ABSENT:
            return []

    @contextmanager
    def _translated(self, action: str, absent: tuple[type[OSError], ...] = ()) -> Iterator[None]:
        try:
            yield
        except absent:
            raise
        except OSError as error:
            raise self._failure(action, error) from error

    def _failure(self, action: str, error: OSError) -> StorageError:
        if error.errno in _FULL:
            return StorageFull(f"the artifact folder {self._root} is full, cannot {action}: free some room")
        reason = error.strerror or str(error)
        return StorageUnavailable(f"the artifact folder {self._root} does not work, cannot {action}: {reason}")


def _modified(found: os.stat_result) -> datetime:
    return datetime.fromtimestamp(found.st_mtime, UTC)


def _sync(folder: Path) -> None:
    """Put a folder's entries on the disk: without it a power cut may forget a name whose content was synced."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
