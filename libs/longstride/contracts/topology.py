"""Names of exchanges and queues, and which message goes where: derived from the flow."""

from longstride.contracts.flow import FLOW, Row

EXCHANGE = "longstride"
"""Topic exchange; the routing key is ``<type>`` or, for ``generate``, ``generate.<track>``."""
DEAD_LETTER_EXCHANGE = "longstride.dead"
DEAD_LETTER_QUEUE = "longstride.dead"
TRACKS = ("fast", "deep")
DELIVERY_LIMIT = 20
"""Broker redeliveries before a quorum queue dead-letters; our own attempt counters are far lower."""


def routing_key(message_type: str, track: str | None = None) -> str:
    """The topic key a message is published under."""
    return f"generate.{track}" if message_type == "generate" else message_type


def queue_name(row: Row, track: str = "fast", incarnation: str = "") -> str:
    """The broker's name of a row's queue, e.g. ``longstride.generate.fast``."""
    return "longstride." + row.queue.format(track=track, incarnation=incarnation)


def durable_bindings() -> tuple[tuple[str, str], ...]:
    """(queue, routing key) of every quorum queue; reply and per-incarnation queues are their owners' affair."""
    pairs = {
        (queue_name(row, track), routing_key(row.message, track))
        for row in FLOW
        if row.queue != "reply" and "{incarnation}" not in row.queue and row.carrier == "kombu"
        for track in (TRACKS if "{track}" in row.queue else TRACKS[:1])
    }
    return tuple(sorted(pairs))


def job_queues() -> tuple[str, ...]:
    """Queues that Celery carries."""
    return tuple(sorted({queue_name(row) for row in FLOW if row.carrier == "celery"}))
