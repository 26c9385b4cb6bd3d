"""The artifact store: content-addressed objects under ``<session>/<kind>/<sha256>``, written before the commit that refers to them.

Stores: ``disk.DiskArtifacts``, ``minio_artifacts.MinioArtifacts``, and ``memory.MemoryArtifacts`` for tests.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Protocol

from longstride.contracts.artifact import ArtifactRef, ref_for
from longstride.storage.errors import ArtifactCorrupt, ArtifactMissing

REFRESH_AFTER = timedelta(hours=1)
"""An object that is put again, and is older than this, counts as modified now. So an object that a transaction in
flight is about to refer to is never older than the orphan collector's grace, which must be well above this."""

_PART = re.compile(r"[A-Za-z0-9._=-]{1,200}")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What a listing says of an object."""

    key: str
    size: int
    """Bytes."""
    modified_at: datetime
    """When it was last put, in UTC, by the store's clock."""


class ArtifactStore(Protocol):
    """Where objects lie. Safe to share between threads.

    Every method may raise ``StorageUnavailable`` (retryable, after the store has itself retried), and
    ``StorageRefused``: the store works but does not let us in.
    """

    def put(self, data: bytes, *, session: str, kind: str, media_type: str = "application/octet-stream") -> ArtifactRef:
        """Store; durable on return. The same bytes under the same session and kind are one object.

        Raises:
            ValueError: ``session`` or ``kind`` is not one plain name.
            StorageFull: no room.
        """
        ...

    def get(self, ref: ArtifactRef) -> bytes:
        """Read, and check size and hash.

        Raises:
            ArtifactMissing: no object lies there.
            ArtifactCorrupt: other bytes lie there.
        """
        ...

    def exists(self, ref: ArtifactRef) -> bool:
        """Whether an object lies there; its content is not read."""
        ...

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Objects whose key begins with ``prefix``, in no particular order (servers differ)."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object; nothing happens when there is none."""
        ...

    def check(self) -> None:
        """Make the store ready (a folder, a bucket), or raise why it is not."""
        ...


def address(data: bytes, session: str, kind: str, media_type: str) -> ArtifactRef:
    """The reference that ``data`` gets.

    Raises:
        ValueError: ``session`` or ``kind`` is not one plain name.
    """
    for name, part in (("session", session), ("kind", kind)):
        if not _PART.fullmatch(part) or part in (".", ".."):
            raise ValueError(f"{name} {part!r} cannot be part of an artifact's key: letters, digits and . _ = - only")
    return ref_for(data, session=session, kind=kind, media_type=media_type)


def path_of(key: str) -> tuple[str, ...]:
    """The parts of a key.

    Raises:
        ArtifactMissing: no object can lie under such a key, since it leads out of the store.
    """
    parts = tuple(key.split("/"))
    if any(part in ("", ".", "..") or "\x00" in part for part in parts):
        raise ArtifactMissing(f"{key!r} is not the key of an artifact (<session>/<kind>/<sha256>)")
    return parts


def verified(ref: ArtifactRef, data: bytes) -> bytes:
    """``data``, when it is what ``ref`` says.

    Raises:
        ArtifactCorrupt: it is not.
    """
    if len(data) != ref.size:
        raise ArtifactCorrupt(f"artifact {ref.key} has {len(data)} bytes, not {ref.size}")
    digest = sha256(data).hexdigest()
    if digest != ref.sha256:
        raise ArtifactCorrupt(f"artifact {ref.key} hashes to {digest}, not {ref.sha256}")
    return data


def is_fresh(modified_at: datetime) -> bool:
    """Whether an object need not be touched when it is put again."""
    return datetime.now(UTC) - modified_at < REFRESH_AFTER
