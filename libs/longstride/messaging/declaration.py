"""Exchanges and queues as the broker gets them; the names come from ``contracts.topology``."""

from typing import Any

from longstride.contracts.topology import (
    DEAD_LETTER_EXCHANGE,
    DEAD_LETTER_QUEUE,
    DELIVERY_LIMIT,
    EXCHANGE,
    durable_bindings,
    job_queues,
)
from longstride.messaging.errors import BusUnavailable, UnsuitableBroker
from longstride.messaging.link import Link

MAX_LENGTH = 500_000
"""Messages a queue holds before it refuses more; what is refused stays in the outbox and is sent again."""


def work_queue_arguments() -> dict[str, Any]:
    """A replicated queue that never drops: full means refused, undeliverable means dead-lettered with a confirm."""
    return {
        "x-queue-type": "quorum",
        "x-delivery-limit": DELIVERY_LIMIT,
        "x-dead-letter-exchange": DEAD_LETTER_EXCHANGE,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-max-length": MAX_LENGTH,
    }


def dead_letter_queue_arguments() -> dict[str, Any]:
    """The last stop: nowhere to go from here, so no limit that is ever reached (RabbitMQ 4 has one of 20 by default)."""
    return {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000_000}


def declare(link: Link) -> None:
    """Make what is missing; declaring twice changes nothing.

    Raises:
        UnsuitableBroker: a queue or exchange of that name exists with other properties.
        BusUnavailable: the broker cannot be reached.
    """
    try:
        channel = link.channel()
        with link.held():
            _declare(channel)
    except BusUnavailable as error:
        if "PRECONDITION_FAILED" not in str(error):
            raise
        raise UnsuitableBroker(
            f"the broker has a queue or exchange of ours with other properties: {error}. "
            "Delete it (its messages are lost: drain it first), or give Longstride a virtual host of its own"
        ) from error


def _declare(channel: Any) -> None:
    channel.exchange_declare(DEAD_LETTER_EXCHANGE, type="fanout", durable=True, auto_delete=False)
    channel.queue_declare(DEAD_LETTER_QUEUE, durable=True, auto_delete=False, arguments=dead_letter_queue_arguments())
    channel.queue_bind(DEAD_LETTER_QUEUE, DEAD_LETTER_EXCHANGE, "")
    channel.exchange_declare(EXCHANGE, type="topic", durable=True, auto_delete=False)
    bindings = durable_bindings()
    for queue in sorted({queue for queue, _ in bindings} | set(job_queues())):
        channel.queue_declare(queue, durable=True, auto_delete=False, arguments=work_queue_arguments())
    for queue, routing_key in bindings:
        channel.queue_bind(queue, EXCHANGE, routing_key)
    channel.close()
