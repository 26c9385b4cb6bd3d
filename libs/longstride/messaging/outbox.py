"""The transactional outbox: what a transaction promises is sent after its commit, once or more, never not at all."""

from datetime import datetime
from functools import partial
from typing import Protocol

from longstride.contracts.envelope import Envelope
from longstride.messaging.address import Address, address_of
from longstride.storage.outbox import OutboxMessage
from longstride.storage.unit_of_work import UnitOfWork

HOLD_S = 2.0
"""How long a fresh row is left to the relay of the process that wrote it."""


class Relay(Protocol):
    """Sends rows right after their commit; see ``relay.OutboxRelay``."""

    def hand_over(self, row: OutboxMessage) -> None:
        """Publish a row that was just committed, without waiting."""


class Outbox:
    """Promises messages inside a transaction."""

    def __init__(self, relay: Relay | None = None) -> None:
        """
        Args:
            relay: sends them right after the commit; without one, some process's relay finds them soon.
        """
        self._relay = relay

    def post(self, uow: UnitOfWork, envelope: Envelope, not_before: datetime | None = None) -> None:
        """Promise a message to whoever the flow says.

        Raises:
            MessageError: it is larger than a message may be.
        """
        self.post_wire(uow, envelope.encode().decode(), envelope.message_id, address_of(envelope), not_before)

    def reply(self, uow: UnitOfWork, envelope: Envelope, queue: str, correlation_id: str | None) -> None:
        """Promise an answer to a client's own queue."""
        address = Address("reply", queue, correlation_id)
        self.post_wire(uow, envelope.encode().decode(), envelope.message_id, address)

    def post_wire(
        self, uow: UnitOfWork, wire: str, message_id: str, address: Address, not_before: datetime | None = None
    ) -> None:
        """Promise a message that is encoded already."""
        at_once = self._relay is not None and not_before is None
        row_id = uow.outbox.add(
            wire,
            message_id,
            address.carrier,
            address.routing_key,
            address.correlation_id,
            not_before,
            reply_to=address.reply_to,
            hold_s=HOLD_S if at_once else 0.0,
        )
        if self._relay is not None and at_once:
            row = OutboxMessage(row_id, message_id, wire=wire, **address._asdict())
            uow.after_commit(partial(self._relay.hand_over, row))
