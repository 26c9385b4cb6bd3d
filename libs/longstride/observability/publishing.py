"""Spans of publications, written when the broker has answered: its confirm comes later, on another thread."""

import json

from longstride.observability import names, trace_family
from longstride.observability.setup import Telemetry
from longstride.observability.spans import finished_span


def published(
    telemetry: Telemetry,
    wire: str,
    routing_key: str,
    *,
    reply: bool = False,
    started_ns: int,
    ended_ns: int,
    error: str | None = None,
) -> None:
    """A span for one message, under the span that made it.

    Args:
        telemetry: the publishing service's.
        wire: the encoded envelope.
        routing_key: the topic, or a queue's name.
        reply: ``routing_key`` is a client's own queue, of which there are too many to name spans after.
        started_ns: Unix nanoseconds when it was handed to the broker.
        ended_ns: Unix nanoseconds when the broker answered.
        error: why the broker did not take it.
    """
    envelope = json.loads(wire)
    with telemetry.activate():
        finished_span(
            names.SEND,
            "reply" if reply else routing_key,
            parent=envelope.get("traceparent") or _root_of(envelope.get("task_id")),
            started_ns=started_ns,
            ended_ns=ended_ns,
            attributes={
                names.MESSAGING_OPERATION_NAME: names.SEND,
                names.MESSAGING_OPERATION_TYPE: names.SEND,
                names.DESTINATION: routing_key,
                names.MESSAGE_ID: envelope["message_id"],
                names.MESSAGE_TYPE: envelope["type"],
                names.BODY_SIZE: len(wire.encode()),
                names.TASK_ID: envelope.get("task_id"),
                names.STEP: envelope["body"].get("step"),
                names.TENANT: envelope.get("tenant"),
            },
            kind="producer",
            error=error,
        )


def _root_of(task_id: str | None) -> str | None:
    """A message that nothing traced made belongs to its task's trace all the same."""
    return str(trace_family.root(task_id)) if task_id else None
