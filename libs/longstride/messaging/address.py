"""Where a message goes: how it is carried, and under which key."""

from typing import Literal, NamedTuple

from longstride.contracts.envelope import Envelope
from longstride.contracts.flow import FLOW
from longstride.contracts.topology import queue_name, routing_key
from longstride.messaging.errors import Unroutable
from longstride.messaging.outgoing import Outgoing, to_exchange, to_job_queue, to_queue

Carrier = Literal["kombu", "celery", "reply", "queue"]


class Address(NamedTuple):
    """The part of an outbox row that says where it goes."""

    carrier: Carrier
    """kombu: the topic exchange; celery: a job queue; reply: somebody's own queue, which may be gone; queue: one of
    the flow's queues alone, past the exchange."""
    routing_key: str
    """The topic key, or the queue."""
    correlation_id: str | None = None
    reply_to: str | None = None


JOBS = {queue_name(row): row.message for row in FLOW if row.carrier == "celery"}
"""Job queue → the job's name, which is the message's type."""
JOB_QUEUES = {job: queue for queue, job in JOBS.items()}
assert len(JOBS) == len(JOB_QUEUES) == sum(row.carrier == "celery" for row in FLOW), "one job a queue"


def address_of(envelope: Envelope) -> Address:
    """Where the flow sends a message of this type."""
    if envelope.type in JOB_QUEUES:
        return Address("celery", JOB_QUEUES[envelope.type])
    track = envelope.body.get("track")
    return Address("kombu", routing_key(envelope.type, track if isinstance(track, str) else None))


def destination(envelope: Envelope) -> str:
    """The one queue that a command goes to."""
    address = address_of(envelope)
    return address.routing_key if address.carrier == "celery" else f"longstride.{address.routing_key}"


def outgoing(address: Address, wire: bytes, message_id: str) -> Outgoing:
    """The message for the bus.

    Raises:
        Unroutable: the carrier or the job queue is unknown.
    """
    match address.carrier:
        case "kombu":
            return to_exchange(wire, address.routing_key, message_id)
        case "reply" | "queue":
            return to_queue(wire, address.routing_key, message_id, address.correlation_id, address.reply_to)
        case "celery" if address.routing_key in JOBS:
            return to_job_queue(wire, address.routing_key, message_id, JOBS[address.routing_key])
    raise Unroutable(f"no way to carry {message_id}: carrier {address.carrier!r}, key {address.routing_key!r}")
