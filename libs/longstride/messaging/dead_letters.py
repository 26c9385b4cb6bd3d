"""Dead letters: what could not be understood or handled lies in PostgreSQL, whole, until somebody replays it."""

import json
import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from longstride.contracts.envelope import MessageError, decode
from longstride.contracts.ids import new_id
from longstride.messaging.address import JOBS, Address
from longstride.messaging.outage import through_outages
from longstride.messaging.outbox import Outbox
from longstride.storage.database import Database
from longstride.storage.dead_letters import DeadLetter
from longstride.storage.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from longstride.messaging.delivery import Delivery  # not at run time: the command line replays without kombu

logger = logging.getLogger(__name__)

REASON_CHARACTERS = 8000
OWN_QUEUES = "longstride.engine."
"""How the names of queues begin that end with the process that made them."""


class CannotReplay(ValueError):
    """There is no such dead letter, or it was replayed before."""


def bury(uow: UnitOfWork, delivery: "Delivery", reason: str) -> int:
    """Keep a delivery, with what is needed to replay it; returns the letter's id."""
    return keep(uow, delivery.queue, delivery.body, reason, _way_back(delivery), delivery.message_id)


def keep(
    uow: UnitOfWork, queue: str, body: bytes, reason: str, headers: Mapping[str, Any], message_id: str | None = None
) -> int:
    """Keep a message; its own id and type are noted where they can be read."""
    raw = readable(body)
    own_id, type_ = raw.get("message_id"), raw.get("type")
    return uow.dead_letters.add(
        queue,
        reason[:REASON_CHARACTERS],
        body,
        dict(headers),
        own_id if isinstance(own_id, str) else message_id,
        type_ if isinstance(type_, str) else None,
    )


def readable(body: bytes) -> Mapping[str, Any]:
    """The fields of a message that may be anything; none when it is not a JSON object."""
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return raw if isinstance(raw, Mapping) else {}


def replay(uow: UnitOfWork, outbox: Outbox, letter_id: int) -> DeadLetter:
    """Put a dead letter back into the queue it came from, in this transaction, and mark it.

    A message that its service has seen under this id is not handled again by that alone, so it goes under its own id
    only when nothing was recorded for it: a letter is written instead of an inbox row, never beside one.

    Raises:
        CannotReplay: there is no such letter, it was replayed before, or its queue is not one of the flow's.
    """
    letter = uow.dead_letters.get(letter_id)
    if letter is None:
        raise CannotReplay(f"there is no dead letter {letter_id}")
    if not uow.dead_letters.mark_replayed(letter_id):
        raise CannotReplay(f"dead letter {letter_id} was replayed at {letter.replayed_at:%Y-%m-%d %H:%M:%S}")
    outbox.post_wire(uow, _text(letter), letter.message_id or new_id("msg"), _address(letter))
    return letter


def _address(letter: DeadLetter) -> Address:
    if letter.queue in JOBS:
        return Address("celery", letter.queue)
    if letter.queue.startswith(OWN_QUEUES):
        return Address("reply", letter.queue)  # its owner may be gone for good, and then nobody wants it
    return Address("queue", letter.queue, letter.headers.get("correlation_id"), letter.headers.get("reply_to"))


def _text(letter: DeadLetter) -> str:
    try:
        return letter.body.decode()
    except UnicodeDecodeError as error:
        raise CannotReplay(f"dead letter {letter.id} is not text and can never be handled") from error


class DeadLetterDrain:
    """Moves the broker's dead letters into PostgreSQL; a ``Consumer``'s handle for ``DEAD_LETTER_QUEUE``.

    They got there because consumers died of them too often or rejected them, so nobody has written the reason yet.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Do not wait for outages to end any more."""
        self._stopped.set()

    def __call__(self, delivery: "Delivery") -> None:
        """Keep one, once the database is there."""
        source, reason = _death(delivery)
        body = job_argument(delivery.body) if source in JOBS else delivery.body

        def move() -> int:
            with self._database.begin() as uow:
                return keep(uow, source, body, reason, _way_back(delivery), delivery.message_id)

        letter_id = through_outages(move, self._stopped, "a dead letter")
        if letter_id is None:
            delivery.requeue()
        else:
            logger.error("dead letter %d from queue %s: %s", letter_id, source, reason)


def job_argument(body: bytes) -> bytes:
    """The envelope inside a Celery message; the body itself when it is none."""
    try:
        wire = json.loads(body)[0][0]
        decode(wire.encode())
    except (ValueError, LookupError, TypeError, AttributeError, MessageError):
        return body
    return bytes(wire.encode())


def _death(delivery: "Delivery") -> tuple[str, str]:
    deaths = delivery.headers.get("x-death") or [{}]
    first = deaths[-1] if isinstance(deaths, list) else {}
    queue = str(delivery.headers.get("x-first-death-queue") or first.get("queue") or delivery.queue)
    reason = str(delivery.headers.get("x-first-death-reason") or first.get("reason") or "unknown")
    texts = {
        "delivery_limit": "its consumers died or gave up on it too often (broker: delivery_limit)",
        "rejected": "its consumer rejected it (broker: rejected)",
        "expired": "it waited too long (broker: expired)",
        "maxlen": "its queue was full (broker: maxlen)",
    }
    return queue, texts.get(reason, f"the broker dead-lettered it: {reason}")


def _way_back(delivery: "Delivery") -> dict[str, Any]:
    """What must be kept of a delivery besides its body, as JSON."""
    headers = {name: value for name, value in delivery.headers.items() if _is_json(value)}
    return {
        **headers,
        "reply_to": delivery.reply_to,
        "correlation_id": delivery.correlation_id,
        "exchange": delivery.exchange,
        "routing_key": delivery.routing_key,
    }


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True
