"""Artifact rows: which objects the committed transactions refer to.

A row is written in the transaction that commits the reference. What is reached only through such an object (a
workspace's blobs, a policy's weight files) may go without; the orphan collector finds it and adds its row.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from longstride.contracts.artifact import ArtifactRef
from longstride.storage.transaction import Transaction


@dataclass(frozen=True, slots=True)
class ArtifactEntry:
    """One reference to an object."""

    ref: ArtifactRef
    session_id: str
    kind: str
    """workspace, blob, context, observation, tokens, trajectory, output, input, batch or policy."""
    task_id: str | None = None
    step: int | None = None
    name: str | None = None
    """The file name, for outputs."""
    created_at: datetime | None = None
    """Set by the database."""


_ADD = """
    INSERT INTO artifacts (key, sha256, size, media_type, session_id, kind, task_id, step, name)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"""
_SELECT = "SELECT key, sha256, size, media_type, session_id, kind, task_id, step, name, created_at FROM artifacts"

_IN_FLIGHT = """
    SELECT DISTINCT (regexp_matches(message, '[0-9a-f]{64}', 'g'))[1] FROM (
        SELECT concat_ws(' ', command, answer) FROM attempts WHERE status IN ('dispatched', 'leased', 'answered')
        UNION ALL SELECT wire FROM outbox
        UNION ALL SELECT wire FROM timers
        UNION ALL SELECT encode(body, 'escape') FROM dead_letters
    ) AS messages(message)"""


class ArtifactRows:
    """The ``artifacts`` table."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def add(
        self,
        ref: ArtifactRef,
        *,
        session_id: str,
        kind: str,
        task_id: str | None = None,
        step: int | None = None,
        name: str | None = None,
    ) -> None:
        """Note a reference; the same one again is the same."""
        self._transaction.later(
            _ADD, (ref.key, ref.sha256, ref.size, ref.media_type, session_id, kind, task_id, step, name)
        )

    def for_task(self, task_id: str, *, kind: str | None = None) -> list[ArtifactEntry]:
        """What a task refers to, in the order it was committed."""
        sql = f"{_SELECT} WHERE task_id = %(task)s AND (%(kind)s::text IS NULL OR kind = %(kind)s) ORDER BY id"
        return self._transaction.rows(_entry, sql, {"task": task_id, "kind": kind})

    def for_session(self, session_id: str) -> list[ArtifactEntry]:
        """What a session refers to, in the order it was committed."""
        return self._transaction.rows(_entry, f"{_SELECT} WHERE session_id = %s ORDER BY id", (session_id,))

    def under(self, prefix: str) -> list[ArtifactEntry]:
        """References to objects whose key begins with ``prefix``, in the order they were committed."""
        return self._transaction.rows(_entry, f"{_SELECT} WHERE starts_with(key, %s) ORDER BY id", (prefix,))

    def in_flight(self) -> set[str]:
        """The SHA-256 hashes that open attempts, unsent messages, timers and dead letters name."""
        return set(self._transaction.values(_IN_FLIGHT))

    def known(self, keys: Collection[str]) -> set[str]:
        """Those of ``keys`` that something refers to."""
        return set(self._transaction.values("SELECT DISTINCT key FROM artifacts WHERE key = ANY(%s)", (list(keys),)))


def _entry(
    key: str,
    sha256: str,
    size: int,
    media_type: str,
    session_id: str,
    kind: str,
    task_id: str | None,
    step: int | None,
    name: str | None,
    created_at: datetime,
) -> ArtifactEntry:
    ref = ArtifactRef(key=key, sha256=sha256, size=size, media_type=media_type)
    return ArtifactEntry(ref, session_id, kind, task_id, step, name, created_at)
