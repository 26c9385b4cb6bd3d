"""Trace context in and out of envelopes."""

from longstride.contracts.envelope import Envelope
from longstride.observability import spans, trace_family


def stamped(envelope: Envelope, traceparent: str | None = None) -> Envelope:
    """The envelope, saying which span made it: ``traceparent``, by default the current span."""
    made_by = traceparent or spans.current_traceparent()
    return envelope if made_by is None else envelope.model_copy(update={"traceparent": made_by})


def parent_for(envelope: Envelope) -> str | None:
    """What the handling of a message belongs under: the root of its task's trace, so that a task's tree stays flat.

    The producer's span is a link, not the parent: it has ended long ago, and a chain of parents would be as deep as
    the task is long. A message about no task belongs under its producer.
    """
    if envelope.task_id is None:
        return envelope.traceparent
    return str(trace_family.root_beside(envelope.task_id, envelope.traceparent))
