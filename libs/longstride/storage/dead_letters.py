"""Dead letters: messages that could not be understood or handled, whole, with the reason."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from longstride.storage.columns import columns
from longstride.storage.transaction import Transaction


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """See ``tables.DeadLetterRow``."""

    id: int
    queue: str
    message_id: str | None
    type: str | None
    reason: str
    body: bytes
    headers: dict[str, Any]
    dead_at: datetime
    replayed_at: datetime | None


_COLUMNS = columns(DeadLetter)
_ADD = """
    INSERT INTO dead_letters (queue, message_id, type, reason, body, headers)
    VALUES (%s, %s, %s, %s, %s, %s) RETURNING id"""
_LIST = f"""
    SELECT {_COLUMNS} FROM dead_letters
    WHERE (%(replayed)s OR replayed_at IS NULL) AND (%(before)s::bigint IS NULL OR id < %(before)s)
    ORDER BY id DESC LIMIT %(limit)s"""
_REPLAYED = "UPDATE dead_letters SET replayed_at = now() WHERE id = %s AND replayed_at IS NULL"


class DeadLetters:
    """The ``dead_letters`` table."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def add(
        self,
        queue: str,
        reason: str,
        body: bytes,
        headers: dict[str, Any],
        message_id: str | None = None,
        type: str | None = None,
    ) -> int:
        """Keep a message; returns its id."""
        row = (queue, message_id, type, reason, body, Jsonb(headers))
        letter: int = self._transaction.value(_ADD, row)
        return letter

    def list(self, *, limit: int = 50, before: int | None = None, replayed: bool = False) -> "list[DeadLetter]":
        """Newest first, from below the id ``before`` on; those already replayed only when asked for."""
        return self._transaction.rows(DeadLetter, _LIST, {"limit": limit, "before": before, "replayed": replayed})

    def waiting(self) -> int:
        """How many were not replayed."""
        number: int = self._transaction.value("SELECT count(*) FROM dead_letters WHERE replayed_at IS NULL")
        return number

    def get(self, letter_id: int) -> DeadLetter | None:
        """One letter, locked, so that it is replayed by one person at a time."""
        return self._transaction.row(
            DeadLetter, f"SELECT {_COLUMNS} FROM dead_letters WHERE id = %s FOR UPDATE", (letter_id,)
        )

    def mark_replayed(self, letter_id: int) -> bool:
        """``False``: it was replayed before, or does not exist."""
        return self._transaction.count(_REPLAYED, (letter_id,)) == 1
