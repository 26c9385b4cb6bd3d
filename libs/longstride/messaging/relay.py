"""The relay: takes rows from the outbox to the broker, and forgets them after the confirm."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from longstride.messaging.address import Address, outgoing
from longstride.messaging.backoff import delay_s
from longstride.messaging.bus import Bus
from longstride.messaging.errors import BusUnavailable, MessagingError, Unroutable
from longstride.messaging.loop import Loop
from longstride.storage.database import Database
from longstride.storage.outbox import OutboxMessage

logger = logging.getLogger(__name__)

POLL_S = 1.0
GATHER_S = 0.2
"""How long confirmed rows are gathered before they are deleted together."""
RESEND_AFTER_S = 15.0
"""When a row that was sent and never settled is looked at again."""
BATCH = 200
REPLY_TRIES = 4
"""After so many tries a reply queue counts as gone for good."""


Observer = Callable[[OutboxMessage, int, MessagingError | None], object]
"""``observer(row, started_ns, error)``"""


@dataclass(slots=True)
class RelayCounts:
    """What a relay did since it started."""

    sent: int = 0
    confirmed: int = 0
    failed: int = 0
    """Publications that went wrong; their rows stay."""
    dropped_replies: int = 0


class OutboxRelay(Loop):
    """Publishes outbox rows: this process's right after their commit, anybody's when they are due.

    Confirms are not waited for: they come in on the bus's thread, and the rows they settle are deleted in batches by
    the relay's thread. A row is deleted after its confirm and never before, so a crash at any point sends a message
    twice rather than not at all; the inbox and the leases make the second one harmless. Messages of one transaction
    are sent in its order; between transactions no order is promised.
    """

    on_settled: Observer | None = None
    """Called on the bus's thread for each message that the broker has answered; it must be quick."""

    def __init__(self, bus: Bus, database: Database, *, polls: bool = True, poll_s: float = POLL_S) -> None:
        """
        Args:
            bus: where to publish.
            database: whose outbox.
            polls: whether to look for the rows of other processes, and for one's own that went wrong.
            poll_s: how often.
        """
        super().__init__("outbox relay", self._step, poll_s)
        self.counts = RelayCounts()
        self._bus = bus
        self._database = database
        self._polls = polls
        self._poll_s = poll_s
        self._next_poll = 0.0
        self._lock = threading.Lock()
        self._in_flight: dict[int, int] = {}
        """Row → Unix nanoseconds when it was handed to the broker."""
        self._settled: list[tuple[OutboxMessage, MessagingError | None]] = []

    @property
    def in_flight(self) -> int:
        """Rows that were sent and are neither confirmed nor given up."""
        return len(self._in_flight)

    def stop(self, timeout_s: float = 5.0) -> None:
        """Wait for confirms that are on their way, delete what they settle, end."""
        deadline = time.monotonic() + timeout_s
        while self._in_flight and self._bus.connected and self._bus.keeps_messages and time.monotonic() < deadline:
            super().wake()
            time.sleep(0.01)
        super().stop(max(0.1, deadline - time.monotonic()))
        if self._settled:
            self._write_down()

    def wake(self) -> None:
        """Something was added to the outbox by another process: look now."""
        self._next_poll = 0.0
        super().wake()

    def hand_over(self, row: OutboxMessage) -> None:
        """Publish a row that was just committed, on this thread, without waiting; leave it to the poll when that fails."""
        try:
            self._send([row])
        except BusUnavailable:
            super().wake()

    def _send(self, rows: Sequence[OutboxMessage]) -> None:
        with self._lock:
            self._in_flight.update(dict.fromkeys((row.id for row in rows), time.time_ns()))
        self.counts.sent += len(rows)
        messages, settled = [], []
        for row in rows:
            try:
                messages.append(outgoing(_address(row), row.wire.encode(), row.message_id))
                settled.append(partial(self._on_settled, row))
            except Unroutable as error:
                self._on_settled(row, error)
        try:
            self._bus.send(messages, settled)
        except BusUnavailable:
            with self._lock:
                self._forget(rows)
            raise

    def _forget(self, rows: Sequence[OutboxMessage]) -> None:
        for row in rows:
            self._in_flight.pop(row.id, None)

    def _on_settled(self, row: OutboxMessage, error: MessagingError | None) -> None:
        self._tell(row, error)
        with self._lock:
            if isinstance(error, BusUnavailable):
                self._in_flight.pop(row.id, None)  # its fate is unknown: it is sent again when due
            else:
                self._settled.append((row, error))
        super().wake()

    def _tell(self, row: OutboxMessage, error: MessagingError | None) -> None:
        """Whoever watches cannot keep a row from being settled: it would be sent again for ever."""
        if self.on_settled is None:
            return
        try:
            self.on_settled(row, self._in_flight.get(row.id, time.time_ns()), error)
        except Exception:
            logger.exception("what watches publications broke at message %s, whose row goes its way", row.message_id)

    def _step(self) -> None:
        if self._settled:
            self.pause(GATHER_S)
            self._write_down()
        if not self._bus.connected:
            self._bus.connect()
        if self._polls and time.monotonic() >= self._next_poll:
            self._next_poll = time.monotonic() + self._poll_s
            while self._poll() == BATCH and not self.stopping:
                pass

    def _write_down(self) -> None:
        """Delete what is confirmed; note what went wrong and when to try again."""
        with self._lock:
            settled, self._settled = self._settled, []
        failed = [(row, error) for row, error in settled if error is not None and not _gone(row, error)]
        kept = {row.id for row, _ in failed}
        try:
            with self._database.begin(durable=False) as uow:
                uow.outbox.delete([row.id for row, _ in settled if row.id not in kept])
                for row, error in failed:
                    uow.outbox.failed(row.id, str(error), _retry_at(row))
        except BaseException:
            with self._lock:
                self._settled = settled + self._settled
            raise
        with self._lock:
            self._forget([row for row, _ in settled])
        self._report(settled, failed)

    def _report(
        self,
        settled: Sequence[tuple[OutboxMessage, MessagingError | None]],
        failed: Sequence[tuple[OutboxMessage, MessagingError | None]],
    ) -> None:
        self.counts.confirmed += sum(error is None for _, error in settled)
        self.counts.failed += len(failed)
        for row, error in settled:
            if error is not None and _gone(row, error):
                self.counts.dropped_replies += 1
                logger.warning("reply %s dropped: queue %r is gone", row.message_id, row.routing_key)
        for row, error in failed:
            logger.error("outbox row %d is kept after try %d: %s", row.id, row.tries + 1, error)

    def _poll(self) -> int:
        """Send what is due and not in flight; returns how many rows were looked at."""
        with self._database.begin(durable=False) as uow:
            due = uow.outbox.claim(BATCH)
            if due:
                uow.outbox.defer([row.id for row in due], RESEND_AFTER_S)
        with self._lock:
            fresh = [row for row in due if row.id not in self._in_flight]
        if fresh:
            self._send(fresh)
        return len(due)


def _address(row: OutboxMessage) -> Address:
    return Address(row.carrier, row.routing_key, row.correlation_id, row.reply_to)  # type: ignore[arg-type]


def _gone(row: OutboxMessage, error: MessagingError) -> bool:
    return row.carrier == "reply" and isinstance(error, Unroutable) and row.tries + 1 >= REPLY_TRIES


def _retry_at(row: OutboxMessage) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=delay_s(row.tries, first_s=1.0, limit_s=60.0))
