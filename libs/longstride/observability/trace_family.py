"""The traces of a task. Their ids follow from the task's id, so every service finds the root without being told.

A task has one trace; a long one has several, its *segments*, because trace viewers choke on tens of thousands of spans.
The trace id is a hash of the task id with the segment's number mixed into its first 32 bits (the last 96, which samplers
read, stay a hash); the root's span id is a hash of the trace id. A root that is written twice is therefore the same span.
"""

from hashlib import sha256

from longstride.observability.traceparent import SpanRef, parse

MAX_SEGMENT = 2**32 - 1


def root(task_id: str, segment: int = 0) -> SpanRef:
    """The root span of a segment.

    Raises:
        ValueError: ``segment`` is negative or above ``MAX_SEGMENT``.
    """
    if not 0 <= segment <= MAX_SEGMENT:
        raise ValueError(f"segment {segment} of {task_id}: give a number from 0 to {MAX_SEGMENT}")
    trace_id = _hash("trace", task_id.encode(), 16) ^ segment << 96
    return SpanRef(trace_id, _hash("root", trace_id.to_bytes(16, "big"), 8))


def segment_of(task_id: str, traceparent: str | None) -> int | None:
    """Which segment of the task a span belongs to; ``None``: it is of another trace, such as a client's own."""
    span = parse(traceparent)
    if span is None:
        return None
    segment, other = divmod(span.trace_id ^ root(task_id).trace_id, 1 << 96)
    return None if other else segment


def root_beside(task_id: str, traceparent: str | None) -> SpanRef:
    """The root of the segment that ``traceparent`` belongs to; the first root for a foreign or missing one."""
    return root(task_id, segment_of(task_id, traceparent) or 0)


def segment_for(step: int, every: int) -> int:
    """The segment that a step belongs to when a new one starts each ``every`` steps; steps count from 1."""
    return max(step - 1, 0) // every


def _hash(what: str, data: bytes, size: int) -> int:
    return int.from_bytes(sha256(f"longstride.{what}\0".encode() + data).digest()[:size], "big")
