"""Carrying out a leased command: claim, acknowledge, work, answer."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from longstride.contracts.envelope import Envelope, MessageError, decode
from longstride.contracts.model import Contract
from longstride.messaging.dead_letters import bury
from longstride.messaging.delivery import Delivery
from longstride.messaging.dispatch import Note
from longstride.messaging.lease import HeldLease, Leases
from longstride.messaging.outage import OUTAGES, through_outages
from longstride.storage.database import Database
from longstride.storage.errors import DatabaseUnavailable, StorageError
from longstride.storage.retry import retrying
from longstride.storage.unit_of_work import UnitOfWork

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a command."""

    message: Contract
    """The event that answers it."""


WorkHandler = Callable[[Envelope, Any, HeldLease], Answer | None]
"""``handler(envelope, message, held)``. Watches ``held.lost`` and returns ``None`` when it gave up because of it."""

Settle = Callable[[Envelope, Note], bool]
"""``settle(envelope, note)`` hands an answer to its taker in this process; see ``Dispatcher.settle``."""

Layer = Callable[[WorkHandler], WorkHandler]
"""Middleware of work: spans, log fields, metrics."""


class Worker:
    """Carries out the commands of one service; ``worker(delivery)`` is a ``Consumer``'s handle.

    The message is acknowledged as soon as its lease is in PostgreSQL, so no delivery is held while work goes on. From
    then on the lease is what brings a lost command back. An error of the handler lets the lease run out: the reaper
    makes it the next attempt, or gives up. While the database or the artifact store is away, the work is done again
    from its start under the same lease, unless it is ``unsafe``.
    """

    def __init__(
        self,
        handlers: Mapping[str, WorkHandler],
        leases: Leases,
        database: Database,
        *,
        unsafe: Callable[[Contract], bool] = lambda _message: False,
        middleware: tuple[Layer, ...] = (),
    ) -> None:
        """
        Args:
            handlers: by message type.
            leases: of this process.
            database: where answers commit.
            unsafe: whether a command must not be run twice. Its claim then survives a crash of the database server.
            middleware: the first is the outermost.
        """
        self._handlers = {type_: _wrapped(handler, middleware) for type_, handler in handlers.items()}
        self._leases = leases
        self._database = database
        self._unsafe = unsafe
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Do not wait for outages to end any more."""
        self._stopped.set()

    def __call__(self, delivery: Delivery) -> None:
        """Deal with one delivery; when it cannot be claimed and ``stop`` was called, it goes back to its queue."""
        try:
            envelope = self.understand(delivery.body)
        except MessageError as error:
            done = self._bury(delivery, str(error))
        else:
            done = self.carry_out(envelope, delivery.acknowledge)
        if not done:
            delivery.requeue()

    def _bury(self, delivery: Delivery, reason: str) -> bool:
        logger.warning("dead letter from %s: %s", delivery.queue, reason)
        bury_it = lambda: retrying(self._database, lambda uow: bury(uow, delivery, reason))  # noqa: E731
        return through_outages(bury_it, self._stopped, delivery.queue) is not None

    def understand(self, wire: bytes) -> Envelope:
        """The command in a message.

        Raises:
            MessageError: it is none, or not one of ours.
        """
        envelope = decode(wire)
        if envelope.type not in self._handlers:
            raise MessageError(f"nobody here handles {envelope.type!r}; known: {', '.join(sorted(self._handlers))}")
        return envelope

    def carry_out(self, envelope: Envelope, acknowledge: Callable[[], object]) -> bool:
        """Claim, acknowledge, work, answer. ``False``: ``stop`` came before the claim; nothing was acknowledged."""
        message = envelope.message()

        def claim_and_work() -> bool:
            with self._leases.hold(envelope, durable=self._unsafe(message)) as held:
                acknowledge()
                if held is not None:
                    self._work(held, self._commit)
            return True

        what = f"{envelope.type} {envelope.message_id}"
        return through_outages(claim_and_work, self._stopped, what) is not None

    def carry_out_here(self, held: HeldLease, settle: Settle) -> None:
        """Work under a lease that came with the dispatch, and hand the answer to its taker in the taker's transaction."""
        with self._leases.ending(held):
            if not held.lost.is_set():
                self._work(held, partial(self._hand_over, settle))

    def _work(self, held: HeldLease, commit: Callable[[Answer, HeldLease], object]) -> None:
        envelope = held.envelope
        try:
            answer = self._answer(envelope, envelope.message(), held)
            if answer is not None and not held.lost.is_set():
                what = f"the answer to {envelope.message_id}"
                through_outages(lambda: commit(answer, held), held.lost, what, partial(self._hindered, held))
        except Exception:
            logger.exception("attempt %d of %s failed: %s", envelope.attempt, envelope.type, envelope.message_id)

    def _answer(self, envelope: Envelope, message: Contract, held: HeldLease) -> Answer | None:
        handler = self._handlers[envelope.type]
        if self._unsafe(message):
            return handler(envelope, message, held)
        what = f"{envelope.type} {envelope.message_id}"
        act = lambda: handler(envelope, message, held)  # noqa: E731
        return through_outages(act, held.lost, what, partial(self._hindered, held))

    def _hindered(self, held: HeldLease, error: StorageError) -> None:
        """Let people see what the task waits for; they cannot while it is the database."""
        if isinstance(error, DatabaseUnavailable):
            return
        try:
            with self._database.begin(durable=False) as uow:
                uow.attempts.hinder(held.lease, str(error))
        except StorageError as unwritten:
            logger.warning("what %s waits for cannot be noted: %s", held.envelope.message_id, unwritten)

    def _hand_over(self, settle: Settle, answer: Answer, held: HeldLease) -> None:
        try:
            settle(held.envelope.follow(answer.message, attempt=held.envelope.attempt), held.settle)
        except OUTAGES:
            raise
        except Exception:
            # Its taker failed, not the work: the queue brings the answer again, and counts the failures.
            logger.exception("the answer to %s goes through the queue", held.envelope.message_id)
            self._commit(answer, held)

    def _commit(self, answer: Answer, held: HeldLease) -> None:
        # Not waiting for the disk is safe where the work may be done again. The planner's durable commit of what it
        # makes of this answer comes later in the same log, so a crash that forgets the answer finds either nothing of
        # the planner's, and the work is done again, or a message that the planner takes with or without our row.
        envelope = held.envelope.follow(answer.message, attempt=held.envelope.attempt)

        def commit(uow: UnitOfWork) -> None:
            held.answer(uow, envelope)

        retrying(self._database, commit, durable=self._unsafe(held.envelope.message()))


def _wrapped(handler: WorkHandler, middleware: tuple[Layer, ...]) -> WorkHandler:
    for layer in reversed(middleware):
        handler = layer(handler)
    return handler
