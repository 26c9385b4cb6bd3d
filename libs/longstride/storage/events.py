"""Task events: the append-only history that a task is a fold of."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from longstride.storage.columns import columns
from longstride.storage.transaction import Transaction


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One event as it was appended."""

    task_id: str
    seq: int
    """1, 2, 3 … without gaps."""
    type: str
    payload: dict[str, Any]
    causation_id: str | None
    """The message that caused it."""
    occurred_at: datetime


_APPEND = "INSERT INTO task_events (task_id, seq, type, payload, causation_id) VALUES (%s, %s, %s, %s, %s)"
_READ = f"SELECT {columns(StoredEvent)} FROM task_events WHERE task_id = %s AND seq > %s ORDER BY seq LIMIT %s"


class Events:
    """The ``task_events`` table."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def append(
        self,
        task_id: str,
        after_seq: int,
        events: Sequence[tuple[str, dict[str, Any]]],
        causation_id: str | None = None,
    ) -> int:
        """Append ``(type, payload)`` pairs after ``after_seq``; returns the last seq.

        Raises:
            VersionConflict: somebody appended after ``after_seq`` meanwhile; at the latest at the commit.
        """
        self._transaction.many(
            _APPEND,
            (
                (task_id, seq, event_type, Jsonb(payload), causation_id)
                for seq, (event_type, payload) in enumerate(events, after_seq + 1)
            ),
        )
        return after_seq + len(events)

    def read(self, task_id: str, after: int = 0, limit: int | None = None) -> list[StoredEvent]:
        """The events with a seq above ``after``, in order."""
        return self._transaction.rows(StoredEvent, _READ, (task_id, after, limit))
