"""The outbox: messages that a transaction promised to send."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from longstride.storage.columns import columns
from longstride.storage.id_block import IdBlock
from longstride.storage.transaction import Transaction

CHANNEL = "longstride_outbox"
"""NOTIFY channel: something was added. A hint; polling is right without it."""


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """A message to be published; see ``tables.OutboxRow``."""

    id: int
    message_id: str
    carrier: str
    routing_key: str
    correlation_id: str | None
    wire: str
    tries: int = 0
    """Failed publications so far."""
    reply_to: str | None = None
    """The queue that waits for an answer to this message."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in the outbox and is due."""

    count: int
    oldest_age_s: float
    """0 when nothing waits."""


_ADD = """
    INSERT INTO outbox (id, message_id, carrier, routing_key, correlation_id, reply_to, wire, not_before)
    VALUES (%s, %s, %s, %s, %s, %s, %s, coalesce(%s, now() + make_interval(secs => %s)))"""
_CLAIM = f"""
    SELECT {columns(OutboxMessage)} FROM outbox
    WHERE not_before <= clock_timestamp() AND created_at <= clock_timestamp() - make_interval(secs => %s)
    ORDER BY created_at, id LIMIT %s FOR UPDATE SKIP LOCKED"""
_DEFER = "UPDATE outbox SET not_before = clock_timestamp() + make_interval(secs => %s) WHERE id = ANY(%s)"
_FAILED = "UPDATE outbox SET tries = tries + 1, error = %s, not_before = %s WHERE id = %s"
_BACKLOG = """
    SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(not_before)), 0)::float8
    FROM outbox WHERE not_before <= clock_timestamp()"""


class Outbox:
    """The ``outbox`` table."""

    def __init__(self, transaction: Transaction, ids: IdBlock, notify: bool) -> None:
        self._transaction = transaction
        self._ids = ids
        self._notify = notify

    def add(
        self,
        wire: str,
        message_id: str,
        carrier: str,
        routing_key: str,
        correlation_id: str | None = None,
        not_before: datetime | None = None,
        *,
        reply_to: str | None = None,
        hold_s: float = 0.0,
    ) -> int:
        """Promise to publish ``wire``, the encoded envelope; returns the row's id, for ``delete``.

        ``hold_s`` leaves the row to this process for so long: it is due for other relays after that.
        """
        row_id = self._ids.take(self._transaction)
        row = (row_id, message_id, carrier, routing_key, correlation_id, reply_to, wire, not_before, hold_s)
        self._transaction.later(_ADD, row)
        if self._notify:
            self._transaction.later("SELECT pg_notify(%s, '')", (CHANNEL,))
            self._notify = False
        return row_id

    def claim(self, limit: int, older_than_s: float = 0.0) -> list[OutboxMessage]:
        """Lock up to ``limit`` due messages, oldest first, passing over those another relay holds.

        The lock lasts as long as the transaction: publish, wait for the confirms, ``delete``, commit.
        ``older_than_s`` leaves the fresh ones to the process that added them.
        """
        return self._transaction.rows(OutboxMessage, _CLAIM, (older_than_s, limit))

    def defer(self, ids: Sequence[int], seconds: float) -> None:
        """They are being published without waiting for the confirms here; due again after so long, unless deleted."""
        self._transaction.later(_DEFER, (seconds, list(ids)))

    def all_due(self) -> None:
        """Nothing is being published by anybody: what is held back or deferred, and has not failed, is due now."""
        self._transaction.later("UPDATE outbox SET not_before = clock_timestamp() WHERE error IS NULL")

    def delete(self, ids: Sequence[int]) -> None:
        """They are confirmed."""
        self._transaction.later("DELETE FROM outbox WHERE id = ANY(%s)", (list(ids),))

    def failed(self, row_id: int, error: str, retry_at: datetime) -> None:
        """It could not be published; it is due again at ``retry_at``."""
        self._transaction.later(_FAILED, (error, retry_at, row_id))

    def backlog(self) -> Backlog:
        """How much is due and not yet sent."""
        backlog = self._transaction.row(Backlog, _BACKLOG)
        assert backlog is not None
        return backlog
