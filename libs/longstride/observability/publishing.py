"""Spans of publications, written when the broker has answered: its confirm comes later, on another thread."""

import json
from typing import Any

from longstride.observability import names, trace_family
from longstride.observability.setup import Telemetry
from longstride.observability.spans import finished_span

TEXTS = ("message_id", "type", "task_id", "tenant", "traceparent")


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
        wire: the encoded envelope; of one that is none, as a dead letter that is sent again may be, little is told.
        routing_key: the topic, or a queue's name.
        reply: ``routing_key`` is a client's own queue, of which there are too many to name spans after.
        started_ns: Unix nanoseconds when it was handed to the broker.
        ended_ns: Unix nanoseconds when the broker answered.
        error: why the broker did not take it.
    """
    envelope = _told(wire)
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
                names.MESSAGE_ID: envelope.get("message_id"),
                names.MESSAGE_TYPE: envelope.get("type"),
                names.BODY_SIZE: len(wire.encode()),
                names.TASK_ID: envelope.get("task_id"),
                names.STEP: envelope.get("step"),
                names.TENANT: envelope.get("tenant"),
            },
            kind="producer",
            error=error,
        )


def _told(wire: str) -> dict[str, Any]:
    """What a span tells of an envelope, each where it is there and of its kind; ``step`` is its body's."""
    try:
        read = json.loads(wire)
    except (ValueError, RecursionError):
        return {}
    envelope = read if isinstance(read, dict) else {}
    texts = {name: value for name in TEXTS if isinstance(value := envelope.get(name), str)}
    body = envelope.get("body")
    step = body.get("step") if isinstance(body, dict) else None
    return {**texts, "step": step} if isinstance(step, int) else texts


def _root_of(task_id: str | None) -> str | None:
    """A message that nothing traced made belongs to its task's trace all the same."""
    return str(trace_family.root(task_id)) if task_id else None
