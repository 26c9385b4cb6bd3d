"""Timers: messages to send at a time, and schedules."""

from dataclasses import dataclass
from datetime import datetime

from longstride.storage.columns import columns
from longstride.storage.transaction import Transaction


@dataclass(frozen=True, slots=True)
class DueTimer:
    """A timer that has gone off; see ``tables.TimerRow``."""

    key: str
    due_at: datetime
    """When it was due."""
    carrier: str
    routing_key: str
    wire: str
    """The envelope as it was set. A schedule's must be sent under a fresh message id, or the inbox drops the second."""
    every_s: float | None
    correlation_id: str | None
    reply_to: str | None


_SET = """
    INSERT INTO timers (key, due_at, carrier, routing_key, wire, every_s, correlation_id, reply_to)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT (key) DO UPDATE SET due_at = excluded.due_at, carrier = excluded.carrier,
        routing_key = excluded.routing_key, wire = excluded.wire, every_s = excluded.every_s,
        correlation_id = excluded.correlation_id, reply_to = excluded.reply_to"""
_SCHEDULE = """
    INSERT INTO timers (key, due_at, carrier, routing_key, wire, every_s)
    VALUES (%s, clock_timestamp(), %s, %s, %s, %s)
    ON CONFLICT (key) DO UPDATE SET carrier = excluded.carrier, routing_key = excluded.routing_key,
        wire = excluded.wire, every_s = excluded.every_s"""
_DUE = f"""
    SELECT {columns(DueTimer)} FROM timers WHERE due_at <= clock_timestamp()
    ORDER BY due_at LIMIT %s FOR UPDATE SKIP LOCKED"""
_MOVE_ON = """
    UPDATE timers SET due_at = due_at
        + make_interval(secs => every_s * (1 + floor(extract(epoch FROM clock_timestamp() - due_at)::float8 / every_s)))
    WHERE key = ANY(%s) AND every_s IS NOT NULL"""
_NEXT = "SELECT extract(epoch FROM min(due_at) - clock_timestamp())::float8 FROM timers WHERE starts_with(key, %s)"


class Timers:
    """The ``timers`` table."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def set(
        self,
        key: str,
        due_at: datetime,
        carrier: str,
        routing_key: str,
        wire: str,
        every_s: float | None = None,
        *,
        correlation_id: str | None = None,
        reply_to: str | None = None,
    ) -> None:
        """Send ``wire`` at ``due_at``, and every ``every_s`` seconds from then on; an earlier timer of this key is replaced.

        Raises:
            ValueError: ``every_s`` is not positive.
        """
        if every_s is not None and every_s <= 0:
            raise ValueError(f"timer {key!r}: every_s must be positive, not {every_s}")
        row = (key, due_at, carrier, routing_key, wire, every_s, correlation_id, reply_to)
        self._transaction.later(_SET, row)

    def schedule(self, key: str, carrier: str, routing_key: str, wire: str, every_s: float) -> None:
        """Have ``wire`` sent every ``every_s`` seconds, from now on; a schedule that is there keeps its next time."""
        self._transaction.later(_SCHEDULE, (key, carrier, routing_key, wire, every_s))

    def remove(self, key: str) -> None:
        """Forget a timer; nothing happens when there is none."""
        self._transaction.later("DELETE FROM timers WHERE key = %s", (key,))

    def due(self, limit: int) -> list[DueTimer]:
        """Take the timers that have gone off, passing over those another process holds.

        Put their messages into the outbox in this transaction. Schedules move on to their next time in the future
        (missed times are not made up for), others are removed.
        """
        due = self._transaction.rows(DueTimer, _DUE, (limit,))
        once = [timer.key for timer in due if timer.every_s is None]
        again = [timer.key for timer in due if timer.every_s is not None]
        if once:
            self._transaction.later("DELETE FROM timers WHERE key = ANY(%s)", (once,))
        if again:
            self._transaction.later(_MOVE_ON, (again,))
        return due

    def next_in_s(self, prefix: str = "") -> float | None:
        """Seconds until the next timer of those keys goes off, negative when it is overdue; ``None`` when there is none."""
        seconds: float | None = self._transaction.value(_NEXT, (prefix,))
        return seconds
