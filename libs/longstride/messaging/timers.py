"""Timers: sends what PostgreSQL has for later, when later has come. It runs in every service."""

from datetime import datetime

from longstride.contracts.envelope import Envelope
from longstride.contracts.ids import new_id
from longstride.messaging.address import Address, address_of
from longstride.messaging.dead_letters import keep
from longstride.messaging.loop import Loop
from longstride.messaging.outbox import Outbox
from longstride.storage.database import Database
from longstride.storage.timers import DueTimer
from longstride.storage.unit_of_work import UnitOfWork

BATCH = 100


def set_timer(uow: UnitOfWork, key: str, due_at: datetime, envelope: Envelope, every_s: float | None = None) -> None:
    """Send a message at a time, and every ``every_s`` seconds from then on; an earlier timer of this key is replaced.

    Raises:
        MessageError: it is larger than a message may be.
    """
    address = address_of(envelope)
    wire = envelope.encode().decode()
    uow.timers.set(key, due_at, address.carrier, address.routing_key, wire, every_s)


def set_schedule(uow: UnitOfWork, key: str, envelope: Envelope, every_s: float) -> None:
    """Send a message every ``every_s`` seconds. Every start of a service may say so: the next time stays what it was."""
    address = address_of(envelope)
    uow.timers.schedule(key, address.carrier, address.routing_key, envelope.encode().decode(), every_s)


class Timers(Loop):
    """Moves due timers into the outbox, in one transaction; each goes off in one process."""

    def __init__(self, database: Database, outbox: Outbox, *, every_s: float = 0.5) -> None:
        """
        Args:
            database: whose timers.
            outbox: where they go.
            every_s: how often to look, and so how late a timer may be.
        """
        super().__init__("timers", self._step, every_s)
        self._database = database
        self._outbox = outbox

    def _step(self) -> None:
        while self.fire() == BATCH and not self.stopping:
            pass

    def fire(self) -> int:
        """Send what is due now; returns how much that was."""
        with self._database.begin() as uow:
            due = uow.timers.due(BATCH)
            for timer in due:
                self._send(uow, timer)
        return len(due)

    def _send(self, uow: UnitOfWork, timer: DueTimer) -> None:
        address = Address(timer.carrier, timer.routing_key, timer.correlation_id, timer.reply_to)  # type: ignore[arg-type]
        try:
            message_id, wire = _message(timer)
        except ValueError as error:
            keep(uow, timer.routing_key, timer.wire.encode(), f"timer {timer.key!r} sends no message: {error}", {})
        else:
            self._outbox.post_wire(uow, wire, message_id, address)


def _message(timer: DueTimer) -> tuple[str, str]:
    """The id and wire form. A schedule needs a fresh id each time, or its consumer takes the second for the first."""
    envelope = Envelope.model_validate_json(timer.wire)
    if timer.every_s is not None:
        envelope = envelope.model_copy(update={"message_id": new_id("msg"), "occurred_at": timer.due_at})
    return envelope.message_id, envelope.encode().decode()
