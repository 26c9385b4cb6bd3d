"""Trace context in and out of envelopes."""

from longstride.contracts.envelope import Envelope
from longstride.contracts.ids import derived_id
from longstride.observability import spans
from longstride.observability.trace_family import root_beside, segment_of


def stamped(envelope: Envelope) -> Envelope:
    """The envelope, saying which span made it: the current one, unless the envelope already names a later segment of its
    task's trace. Who handles it then goes on in that segment."""
    current = spans.current_traceparent()
    if current is None or _goes_on(envelope, current):
        return envelope
    return envelope.model_copy(update={"traceparent": current})


def task_of(envelope: Envelope) -> str | None:
    """The task that a message is about; a submission without a task id will get this one."""
    if envelope.task_id is None and envelope.type == "submit_task":
        return derived_id("task", envelope.message_id)
    return envelope.task_id


def parent_for(envelope: Envelope) -> str | None:
    """What the handling of a message belongs under: the root of its task's trace, so that a task's tree stays flat.

    The producer's span is a link, not the parent: it has ended long ago, and a chain of parents would be as deep as
    the task is long. A message about no task belongs under its producer.
    """
    task_id = task_of(envelope)
    return str(root_beside(task_id, envelope.traceparent)) if task_id else envelope.traceparent


def _goes_on(envelope: Envelope, current: str) -> bool:
    if envelope.task_id is None:
        return False
    here, named = (segment_of(envelope.task_id, span) for span in (current, envelope.traceparent))
    return here is not None and named is not None and named > here
