"""How a command gets to whoever carries it out."""

from typing import Protocol

from longstride.contracts.envelope import Envelope
from longstride.messaging.lease import AttemptKey
from longstride.messaging.outbox import Outbox
from longstride.storage.unit_of_work import UnitOfWork


class Commands(Protocol):
    """Dispatches inside a transaction: recorded as an attempt, so that no crash loses it."""

    def dispatch(self, uow: UnitOfWork, key: AttemptKey, envelope: Envelope) -> None:
        """Promise that the command will be carried out.

        Raises:
            AlreadyExists: this attempt was dispatched; at the latest at the commit.
            MessageError: the command is larger than a message may be.
        """


class QueuedCommands:
    """Through the outbox and the queue that the flow names."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def dispatch(self, uow: UnitOfWork, key: AttemptKey, envelope: Envelope) -> None:
        """Record it, and promise the message."""
        uow.attempts.dispatch(*key, envelope.message_id, envelope.encode().decode())
        self._outbox.post(uow, envelope)
