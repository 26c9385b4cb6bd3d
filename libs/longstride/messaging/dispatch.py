"""From a delivery to a handled message: one transaction, once, and nothing is lost on the way."""

import logging
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

from longstride.contracts.envelope import Envelope, MessageError, decode, seal
from longstride.contracts.model import Contract
from longstride.contracts.topology import EXCHANGE, routing_key
from longstride.contracts.v1 import MESSAGES
from longstride.contracts.v1.events import TaskRejected
from longstride.messaging.backoff import delay_s
from longstride.messaging.dead_letters import bury, readable
from longstride.messaging.delivery import Delivery
from longstride.messaging.handling import DeliveryInfo, Handler, Middleware, wrapped
from longstride.messaging.outage import OUTAGES, through_outages
from longstride.messaging.outbox import Outbox
from longstride.storage.database import Database
from longstride.storage.errors import StorageError
from longstride.storage.unit_of_work import UnitOfWork

logger = logging.getLogger(__name__)

MAX_FAILURES = 5
"""After so many failures of its handler a message is a dead letter."""
CONFLICT_TRIES = 6
Verdict = Literal["handled", "seen", "retried", "buried"]
Note = Callable[[UnitOfWork], Callable[[], bool]]
"""Writes down that a message is handled; what it returns says whether it is still to be handled, and may be slow."""


class Dispatcher:
    """Handles the deliveries of one service; ``dispatcher(delivery)`` is a ``Consumer``'s handle.

    Returns when the message may be acknowledged: it was handled, was handled before, is a dead letter, or a timer in
    PostgreSQL will bring it back. While the database or the artifact store is away it waits, with the message
    unacknowledged; ``stop`` ends the wait and gives the message back. A handler that finds the message to be nonsense
    raises ``MessageError``.
    """

    def __init__(
        self,
        service: str,
        handlers: Mapping[str, Handler],
        database: Database,
        outbox: Outbox,
        *,
        middleware: Sequence[Middleware] = (),
        max_failures: int = MAX_FAILURES,
        first_retry_s: float = 1.0,
        foresee: Callable[[UnitOfWork, Envelope], object] = lambda _uow, _envelope: None,
        given_up: Callable[[UnitOfWork, Envelope, str], object] = lambda _uow, _envelope, _reason: None,
    ) -> None:
        """
        Args:
            service: its name.
            handlers: by message type.
            database: where they commit.
            outbox: takes rejections.
            middleware: the first is the outermost.
            max_failures: after so many the message is a dead letter.
            first_retry_s: after a failure; doubled each time.
            foresee: queues what the handler is sure to read, so that it travels with the inbox's row.
            given_up: does what else there is to do about a message that could be read and became a dead letter, with the reason.
        """
        self._service = service
        self._handlers = {type_: wrapped(handler, list(middleware)) for type_, handler in handlers.items()}
        self._database = database
        self._outbox = outbox
        self._max_failures = max_failures
        self._first_retry_s = first_retry_s
        self._foresee = foresee
        self._given_up = given_up
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Do not wait for outages to end any more."""
        self._stopped.set()

    def __call__(self, delivery: Delivery) -> Verdict | None:
        """Deal with one delivery. ``None``: it was given back to its queue."""
        verdict = through_outages(lambda: self._dispatch(delivery), self._stopped, f"{self._service}: a message")
        if verdict is None:
            delivery.requeue()
        return verdict

    def settle(self, envelope: Envelope, note: Note) -> bool:
        """Handle a message that arose in this process and was in no queue: in one transaction with what ``note`` writes.

        ``False``: ``note`` said that it is not wanted. An error means that nothing has happened.
        """
        info = DeliveryInfo("")
        return self._once(self._handlers[envelope.type], envelope, envelope.message(), info, note)

    def _dispatch(self, delivery: Delivery) -> Verdict:
        try:
            envelope = decode(delivery.body)
            _require_key(delivery, envelope)
            handler = self._handlers.get(envelope.type)
            if handler is None:
                raise MessageError(f"{self._service} does not handle {envelope.type!r}")
        except MessageError as error:
            return self._refuse(delivery, str(error))
        try:
            return self._handle(handler, envelope, delivery)
        except MessageError as error:
            return self._refuse(delivery, str(error), envelope)
        except OUTAGES:
            raise
        except Exception as error:
            logger.exception("%s: could not handle %s %s", self._service, envelope.type, envelope.message_id)
            return self._fail(delivery, envelope, error)

    def _handle(self, handler: Handler, envelope: Envelope, delivery: Delivery) -> Verdict:
        info = DeliveryInfo(delivery.queue, delivery.reply_to, delivery.correlation_id, delivery.redelivered)
        note = lambda uow: uow.inbox.note(self._service, envelope.message_id)  # noqa: E731
        return "handled" if self._once(handler, envelope, envelope.message(), info, note) else "seen"

    def _once(self, handler: Handler, envelope: Envelope, message: Contract, info: DeliveryInfo, note: Note) -> bool:
        """Handle it in one transaction, unless ``note`` finds that this was done; again where others were in the way."""
        for attempt in range(1, CONFLICT_TRIES + 1):
            try:
                with self._database.begin() as uow:
                    self._foresee(uow, envelope)
                    if not note(uow)():
                        return False
                    handler(envelope, message, uow, info)
                return True
            except OUTAGES:
                raise
            except StorageError as error:
                if not error.retryable or attempt == CONFLICT_TRIES:
                    raise
                time.sleep(delay_s(attempt, first_s=0.005, limit_s=0.2))
        raise AssertionError("the last try returns or raises")

    def _refuse(self, delivery: Delivery, reason: str, envelope: Envelope | None = None) -> Verdict:
        """Keep a message that cannot be understood, and tell who waits for an answer."""
        logger.warning("%s: dead letter from %s: %s", self._service, delivery.queue, reason)
        with self._database.begin() as uow:
            bury(uow, delivery, reason)
            if envelope is not None:
                self._given_up(uow, envelope, reason)
            if delivery.reply_to is not None and _may_be_a_task(delivery.body):
                rejection = seal(TaskRejected(reason=reason[:8000]), causation_id=_claimed_id(delivery.body))
                self._outbox.reply(uow, rejection, delivery.reply_to, delivery.correlation_id)
        return "buried"

    def _fail(self, delivery: Delivery, envelope: Envelope, error: Exception) -> Verdict:
        """Count a failure of the handler; bring the message back later, or bury it."""
        reason = f"{type(error).__name__}: {error}"
        with self._database.begin() as uow:
            failures = uow.delivery_failures.count(self._service, envelope.message_id, reason[:2000])
            if failures >= self._max_failures:
                bury(uow, delivery, f"failed {failures} times; the last time:\n{summary(error)}")
                uow.delivery_failures.forget(self._service, envelope.message_id)
                self._given_up(uow, envelope, reason)
                return "buried"
            uow.timers.set(
                f"retry:{self._service}:{envelope.message_id}",
                datetime.now(UTC) + timedelta(seconds=delay_s(failures - 1, self._first_retry_s, limit_s=60.0)),
                "queue",
                delivery.queue,
                envelope.encode().decode(),
                correlation_id=delivery.correlation_id,
                reply_to=delivery.reply_to,
            )
        return "retried"


def _require_key(delivery: Delivery, envelope: Envelope) -> None:
    """A broker lets its users publish by routing key: one that is not the message's would make these rights worth nothing.

    Raises:
        MessageError: it came under another's key.
    """
    track = envelope.body.get("track")
    key = routing_key(envelope.type, str(track) if track else None)
    if delivery.exchange == EXCHANGE and delivery.routing_key != key:
        raise MessageError(
            f"a {envelope.type} message was published under the routing key {delivery.routing_key!r}, not {key!r}"
        )


def summary(error: Exception) -> str:
    """The end of a traceback, where the cause is."""
    return "".join(traceback.format_exception(error))[-4000:]


def _may_be_a_task(body: bytes) -> bool:
    """Whether it was meant as one: anything that is not clearly another message."""
    type_ = readable(body).get("type")
    return type_ == "submit_task" or type_ not in MESSAGES


def _claimed_id(body: bytes) -> str | None:
    claimed = readable(body).get("message_id")
    try:
        return Envelope(message_id=str(claimed), type="", body={}).message_id if claimed is not None else None
    except ValueError:
        return None
