"""Orphan collection: objects that no committed transaction refers to are deleted, once they are old enough.

An object is written before the transaction that refers to it commits; where that never happens, it stays behind. The
collector keeps an object when

- it is younger than the grace: its transaction may still come (``put`` makes an old object young again),
- a row in ``artifacts`` refers to it,
- a command, an answer, an outbox message, a timer or a dead letter in PostgreSQL names its hash: it is in flight, however
  long the services have been down, or
- a kept object of its session names its hash, as a workspace's snapshot names its packs and the snapshots it builds on,
  and a policy's manifest its weight files. Such an object is *adopted*: it gets a row, so that it is looked up only once.

What names nothing (``LEAVES``) is never read. Where a kept object that may name others cannot be read, nothing of its
session is deleted. A message that only the broker holds protects nothing: the grace must be longer than any queue.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from longstride.contracts.artifact import ArtifactRef
from longstride.storage.artifacts import REFRESH_AFTER, ArtifactStore, StoredObject
from longstride.storage.database import Database
from longstride.storage.errors import ArtifactCorrupt, ArtifactMissing
from longstride.storage.retry import retrying
from longstride.storage.unit_of_work import UnitOfWork
from longstride.storage.zstd import MAGIC, decompress

LEAVES = frozenset({"blob", "pack", "observation", "output", "input", "weights", "optimizer"})
"""Kinds whose objects name no others."""

MAX_UNPACKED = 1 << 30
"""Bytes of a compressed object that names others."""

_KEY = re.compile(r"[^/]+/[^/]+/[0-9a-f]{64}")
"""What the stores make; anything else in the bucket or folder is somebody else's and left alone."""
_HASH = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


@dataclass(slots=True)
class Collected:
    """What a collection did."""

    deleted: int = 0
    deleted_bytes: int = 0
    adopted: int = 0
    """Objects that were kept because another one names them."""
    unreadable: list[str] = field(default_factory=list)
    """Kept objects that could not be read; their sessions were left alone."""


def collect_orphans(store: ArtifactStore, database: Database, older_than: timedelta) -> Collected:
    """Delete the orphans of every session that are older than ``older_than``.

    Run it rarely (once a day): it lists the whole store. A second one at the same time does no harm.

    Raises:
        ValueError: ``older_than`` is not well above ``artifacts.REFRESH_AFTER``.
        StorageUnavailable, DatabaseUnavailable: what was deleted until then were orphans; run it again.
    """
    if older_than < 2 * REFRESH_AFTER:
        raise ValueError(
            f"older_than must be at least {2 * REFRESH_AFTER}, or objects about to be referred to are lost"
        )
    return _collect(store, database, datetime.now(UTC) - older_than)


def _collect(store: ArtifactStore, database: Database, before: datetime) -> Collected:
    result = Collected()
    sessions = {found.key.split("/", 1)[0] for found in store.list() if _KEY.fullmatch(found.key)}
    for session in sorted(sessions):
        _Session(store, database, session).collect(before, result)
    return result


class _Session:
    def __init__(self, store: ArtifactStore, database: Database, name: str) -> None:
        self._store, self._database, self._name = store, database, name

    def collect(self, before: datetime, result: Collected) -> None:
        listed = self._store.list(f"{self._name}/")
        old = {found.key: found for found in listed if found.modified_at < before and _KEY.fullmatch(found.key)}
        known = self._known(old)
        candidates = {key: found for key, found in old.items() if key not in known}
        if not candidates:
            return
        try:
            in_flight, adopted = self._in_flight(candidates), self._adopted(candidates)
        except (ArtifactMissing, ArtifactCorrupt) as error:
            result.unreadable.append(str(error))
            return
        self._add_rows(adopted)
        result.adopted += len(adopted)
        for key in sorted(candidates.keys() - adopted.keys() - in_flight.keys()):
            if self._is_still_old(key, before) and not self._known([key]):
                self._store.delete(key)
                result.deleted += 1
                result.deleted_bytes += candidates[key].size

    def _known(self, keys: Collection[str]) -> set[str]:
        return retrying(self._database, lambda uow: uow.artifacts.known(keys))

    def _in_flight(self, candidates: dict[str, StoredObject]) -> dict[str, ArtifactRef]:
        """The candidates that something in flight names, and what those name."""
        named = retrying(self._database, lambda uow: uow.artifacts.in_flight())
        roots = [_ref(found) for key, found in candidates.items() if _hash(key) in named]
        return {ref.key: ref for ref in roots} | self._reached(roots, candidates)

    def _adopted(self, candidates: dict[str, StoredObject]) -> dict[str, ArtifactRef]:
        """The candidates that are reached from the objects with a row."""
        entries = retrying(self._database, lambda uow: uow.artifacts.under(f"{self._name}/"))
        roots = {entry.ref.key: entry.ref for entry in entries}
        return self._reached(list(roots.values()), candidates)

    def _reached(self, to_read: list[ArtifactRef], candidates: dict[str, StoredObject]) -> dict[str, ArtifactRef]:
        by_hash: dict[str, list[StoredObject]] = {}
        for found in candidates.values():
            by_hash.setdefault(_hash(found.key), []).append(found)
        reached: dict[str, ArtifactRef] = {}
        while to_read:
            for digest in self._names(to_read.pop()):
                named = [_ref(found) for found in by_hash.pop(digest, ())]
                reached.update((ref.key, ref) for ref in named)
                to_read.extend(named)
        return reached

    def _names(self, ref: ArtifactRef) -> set[str]:
        """The hashes that an object names."""
        if _kind(ref.key) in LEAVES:
            return set()
        data = self._store.get(ref)
        return {digest.decode() for digest in _HASH.findall(_readable(ref, data))}

    def _add_rows(self, adopted: dict[str, ArtifactRef]) -> None:
        def add(uow: UnitOfWork) -> None:
            for ref in adopted.values():
                uow.artifacts.add(ref, session_id=self._name, kind=_kind(ref.key))

        retrying(self._database, add)

    def _is_still_old(self, key: str, before: datetime) -> bool:
        """Looked at again right before the deletion: it may have been put meanwhile, for a transaction to come."""
        return any(found.key == key and found.modified_at < before for found in self._store.list(key))


def _readable(ref: ArtifactRef, data: bytes) -> bytes:
    """What an object says, unpacked where it is compressed."""
    if not data.startswith(MAGIC):
        return data
    try:
        return decompress(data, MAX_UNPACKED)
    except ValueError as error:
        raise ArtifactCorrupt(f"artifact {ref.key}: {error}") from error


def _ref(found: StoredObject) -> ArtifactRef:
    return ArtifactRef(key=found.key, sha256=_hash(found.key), size=found.size)


def _hash(key: str) -> str:
    return key.rsplit("/", 1)[-1]


def _kind(key: str) -> str:
    return key.split("/")[-2]
