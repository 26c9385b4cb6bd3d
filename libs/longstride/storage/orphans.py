"""Orphan collection: objects that no committed transaction refers to are deleted, once they are old enough.

An object is written before the transaction that refers to it commits; where that never happens, it stays behind. The
collector keeps an object when

- it is younger than the grace: its transaction may still come (``put`` makes an old object young again),
- a row in ``artifacts`` refers to it, or
- a kept object of its session names its hash, as a workspace's manifest names its blobs and a policy's manifest its
  weight files. Such an object is *adopted*: it gets a row, so that it is looked up only once.

What names nothing (``LEAVES``) is never read. Where a kept object that may name others cannot be read, nothing of its
session is deleted. Sessions do not name each other's objects without a row of their own.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby

from longstride.contracts.artifact import ArtifactRef
from longstride.storage.artifacts import REFRESH_AFTER, ArtifactStore, StoredObject
from longstride.storage.database import Database
from longstride.storage.errors import ArtifactCorrupt, ArtifactMissing
from longstride.storage.retry import retrying
from longstride.storage.unit_of_work import UnitOfWork

LEAVES = frozenset({"blob", "observation", "output", "input", "weights", "optimizer"})
"""Kinds whose objects name no others."""

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
    objects = sorted(store.list(), key=lambda found: found.key)
    for session, found in groupby(objects, key=lambda found: found.key.split("/", 1)[0]):
        old = {each.key: each for each in found if each.modified_at < before}
        _Session(store, database, session).collect(old, before, result)
    return result


class _Session:
    def __init__(self, store: ArtifactStore, database: Database, name: str) -> None:
        self._store, self._database, self._name = store, database, name

    def collect(self, old: dict[str, StoredObject], before: datetime, result: Collected) -> None:
        candidates = {key: found for key, found in old.items() if key not in self._known(old)}
        if not candidates:
            return
        try:
            adopted = self._adopt(candidates)
        except (ArtifactMissing, ArtifactCorrupt) as error:
            result.unreadable.append(str(error))
            return
        result.adopted += len(adopted)
        for key in sorted(candidates.keys() - adopted):
            if self._is_still_old(key, before) and not self._known([key]):
                self._store.delete(key)
                result.deleted += 1
                result.deleted_bytes += candidates[key].size

    def _known(self, keys: Collection[str]) -> set[str]:
        return retrying(self._database, lambda uow: uow.artifacts.known(keys))

    def _adopt(self, candidates: dict[str, StoredObject]) -> set[str]:
        """Follow the names from the session's kept objects; returns the candidates that were reached."""
        by_hash: dict[str, list[StoredObject]] = {}
        for found in candidates.values():
            by_hash.setdefault(found.key.rsplit("/", 1)[-1], []).append(found)
        adopted: set[str] = set()
        to_read = list(self._roots())
        while to_read:
            for digest in self._names(to_read.pop()):
                for found in by_hash.pop(digest, ()):
                    ref = ArtifactRef(key=found.key, sha256=digest, size=found.size)
                    adopted.add(found.key)
                    self._add_row(ref)
                    to_read.append(ref)
        return adopted

    def _roots(self) -> Iterator[ArtifactRef]:
        entries = retrying(self._database, lambda uow: uow.artifacts.for_session(self._name))
        seen = {entry.ref.key: entry.ref for entry in entries}
        yield from seen.values()

    def _names(self, ref: ArtifactRef) -> set[str]:
        """The hashes that an object names."""
        if _kind(ref.key) in LEAVES:
            return set()
        return {digest.decode() for digest in _HASH.findall(self._store.get(ref))}

    def _add_row(self, ref: ArtifactRef) -> None:
        def add(uow: UnitOfWork) -> None:
            uow.artifacts.add(ref, session_id=self._name, kind=_kind(ref.key))

        retrying(self._database, add)

    def _is_still_old(self, key: str, before: datetime) -> bool:
        """Looked at again right before the deletion: it may have been put meanwhile, for a transaction to come."""
        return any(found.key == key and found.modified_at < before for found in self._store.list(key))


def _kind(key: str) -> str:
    return key.split("/")[-2] if key.count("/") >= 2 else ""
