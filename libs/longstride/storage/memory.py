"""Artifacts in memory: the twin of the real stores, for tests."""

from collections.abc import Iterator
from datetime import UTC, datetime
from threading import Lock

from longstride.contracts.artifact import ArtifactRef
from longstride.storage.artifacts import StoredObject, address, path_of, verified
from longstride.storage.errors import ArtifactMissing


class MemoryArtifacts:
    """An ``ArtifactStore`` that forgets when it is dropped."""

    def __init__(self) -> None:
        self._objects: dict[str, tuple[bytes, datetime]] = {}
        self._lock = Lock()

    def put(self, data: bytes, *, session: str, kind: str, media_type: str = "application/octet-stream") -> ArtifactRef:
        """Store."""
        ref = address(data, session, kind, media_type)
        with self._lock:
            self._objects[ref.key] = bytes(data), datetime.now(UTC)
        return ref

    def get(self, ref: ArtifactRef) -> bytes:
        """Read, and check size and hash."""
        path_of(ref.key)
        found = self._objects.get(ref.key)
        if found is None:
            raise ArtifactMissing(f"no artifact lies under {ref.key}")
        return verified(ref, found[0])

    def exists(self, ref: ArtifactRef) -> bool:
        """Whether an object lies there."""
        return ref.key in self._objects

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Objects whose key begins with ``prefix``."""
        with self._lock:
            found = [(key, *held) for key, held in self._objects.items() if key.startswith(prefix)]
        return (StoredObject(key, len(data), modified_at) for key, data, modified_at in found)

    def delete(self, key: str) -> None:
        """Remove an object."""
        with self._lock:
            self._objects.pop(key, None)

    def check(self) -> None:
        """Memory is always ready."""
