"""What a policy needs of the artifact store, and a cache of what never changes."""

from collections import OrderedDict
from threading import Lock
from typing import Protocol

from longstride.contracts.artifact import ArtifactRef


class Artifacts(Protocol):
    """The part of ``storage.artifacts`` that is used here."""

    def put(self, data: bytes, *, session: str, kind: str, media_type: str = ...) -> ArtifactRef:
        """Store bytes; the same bytes give the same reference."""
        ...

    def get(self, ref: ArtifactRef) -> bytes:
        """The bytes, verified."""
        ...


class CachedArtifacts:
    """Remembers the objects that were read or written last: sealed segments and token records are read at each step of their task."""

    def __init__(self, artifacts: Artifacts, capacity: int = 32 * 1024 * 1024) -> None:
        self._artifacts = artifacts
        self._capacity = capacity
        self._held: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._lock = Lock()

    def put(self, data: bytes, *, session: str, kind: str, media_type: str = "application/octet-stream") -> ArtifactRef:
        """Store bytes and remember them."""
        ref = self._artifacts.put(data, session=session, kind=kind, media_type=media_type)
        self._remember(ref.key, data)
        return ref

    def get(self, ref: ArtifactRef) -> bytes:
        """The bytes, from memory where they are held."""
        with self._lock:
            if ref.key in self._held:
                self._held.move_to_end(ref.key)
                return self._held[ref.key]
        data = self._artifacts.get(ref)
        self._remember(ref.key, data)
        return data

    def _remember(self, key: str, data: bytes) -> None:
        with self._lock:
            self._size += len(data) - len(self._held.pop(key, b""))
            self._held[key] = data
            while self._size > self._capacity:
                _, dropped = self._held.popitem(last=False)
                self._size -= len(dropped)
