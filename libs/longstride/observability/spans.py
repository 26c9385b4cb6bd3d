"""Spans, for whoever does the work. Without ``setup`` they cost nothing and go nowhere."""

import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from longstride.observability import names, trace_family
from longstride.observability.context import Value, span_fields
from longstride.observability.names import Attribute, SpanName
from longstride.observability.redact import hidden
from longstride.observability.traceparent import SpanRef, parse

Kind = Literal["internal", "server", "client", "producer", "consumer"]
Attributes = Mapping[Attribute, Value | Sequence[str] | None]

AGENT = "longstride"
KINDS: dict[Kind, SpanKind] = {
    "internal": SpanKind.INTERNAL,
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER,
}
MAX_MESSAGE = 1024
"""Characters kept of an exception's message."""
MAX_STACKTRACE = 4096

active_tracer: ContextVar[trace.Tracer | None] = ContextVar("longstride_tracer", default=None)
"""The tracer of the service that this thread works for; ``Telemetry.activate`` sets it."""
pinned: ContextVar[SpanRef | None] = ContextVar("longstride_pinned_ids", default=None)
"""The ids that the span being started must have."""
_process_tracer: list[trace.Tracer] = []


@contextmanager
def span(
    name: SpanName,
    target: str | None = None,
    *,
    parent: str | None = None,
    links: Iterable[str | None] = (),
    attributes: Attributes | None = None,
    kind: Kind = "internal",
) -> Iterator[Span]:
    """A span around a ``with`` block. What the block raises is recorded and goes on.

    Args:
        name: from ``names``; the span is called ``<name> <target>``.
        parent: a traceparent; by default the current span. An invalid one begins a trace of its own.
        links: traceparents that this follows from; missing and invalid ones are left out.
        attributes: keys from ``names``; ``None`` values are left out. The fields of ``context.bind`` are added.
    """
    context = _context_of(parent)
    started = tracer().start_span(
        f"{name} {target}" if target else name,
        context,
        KINDS[kind],
        {**span_fields(), **_given(attributes)},
        _links(links),
    )
    with trace.use_span(started, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield started
        except BaseException as error:
            record_exception(started, error)
            raise


@contextmanager
def under(parent: str | None) -> Iterator[None]:
    """Spans of this thread belong under a span of another process for the time of a ``with`` block; ``None``: as they are."""
    context = _context_of(parent)
    if context is None:
        yield
        return
    token = otel_context.attach(context)
    try:
        yield
    finally:
        otel_context.detach(token)


def root(
    task_id: str,
    *,
    segment: int = 0,
    session_id: str | None = None,
    tenant: str | None = None,
    links: Iterable[str | None] = (),
    attributes: Attributes | None = None,
) -> str:
    """Write the start marker of a task's trace, or of a later segment of it, and return its traceparent.

    Writing it again, after a rolled-back transaction, gives the same span. A client's own traceparent belongs in ``links``:
    a task outlives the request that made it. A later segment is linked to the one before.
    """
    ref = trace_family.root(task_id, segment)
    before = str(trace_family.root(task_id, segment - 1)) if segment else None
    token = pinned.set(ref)
    try:
        marker = tracer().start_span(
            f"{names.INVOKE_AGENT} {AGENT}",
            otel_context.Context(),
            SpanKind.INTERNAL,
            _given(
                {
                    names.OPERATION: names.INVOKE_AGENT,
                    names.AGENT_NAME: AGENT,
                    names.CONVERSATION_ID: session_id,
                    names.TASK_ID: task_id,
                    names.TENANT: tenant,
                    names.SEGMENT: segment,
                    **(attributes or {}),
                }
            ),
            _links([before, *links]),
        )
    finally:
        pinned.reset(token)
    marker.end()
    return str(ref)


def segment_root(task_id: str, step: int, every: int, current: str | None) -> str:
    """The traceparent of the root that ``step`` belongs under, given the task's ``current`` one.

    A step that opens a new segment writes its marker. Call it when a step starts and store the result with the task.
    """
    segment = trace_family.segment_for(step, every)
    if segment == trace_family.segment_of(task_id, current):
        return str(trace_family.root(task_id, segment))
    return root(task_id, segment=segment, attributes={names.STEP: step})


def current_traceparent() -> str | None:
    """The traceparent of the current span; ``None`` outside any."""
    context = trace.get_current_span().get_span_context()
    return str(SpanRef(context.trace_id, context.span_id, context.trace_flags)) if context.is_valid else None


def finished_span(
    name: SpanName,
    target: str,
    *,
    parent: str | None,
    started_ns: int,
    ended_ns: int,
    attributes: Attributes,
    kind: Kind = "internal",
    error: str | None = None,
) -> None:
    """A span of something that is over, such as a publication whose confirm came on another thread.

    ``started_ns`` and ``ended_ns`` are Unix nanoseconds; ``error`` says what went wrong.
    """
    given = _given(attributes)
    finished = tracer().start_span(f"{name} {target}", _context_of(parent), KINDS[kind], given, start_time=started_ns)
    if error is not None:
        finished.set_status(Status(StatusCode.ERROR, error))
    finished.end(ended_ns)


def set_attributes(span: Span, attributes: Attributes) -> None:
    """Add what only became known inside the span; ``None`` values are left out."""
    span.set_attributes(_given(attributes))


def add_event(name: str, attributes: Attributes) -> None:
    """Something that happened inside the current span."""
    trace.get_current_span().add_event(name, _given(attributes))


def record_exception(span: Span, error: BaseException) -> None:
    """Mark a span as failed, and say by what. Secrets are taken out on export, as of all attributes."""
    kind = type(error).__qualname__
    summary = hidden(traceback.format_exception_only(error)[-1].strip())  # unlike str(error), it cannot raise
    span.add_event(
        names.EXCEPTION,
        {
            names.EXCEPTION_TYPE: kind,
            names.EXCEPTION_MESSAGE: summary.partition(": ")[2][:MAX_MESSAGE],
            names.EXCEPTION_STACKTRACE: hidden("".join(traceback.format_exception(error)))[-MAX_STACKTRACE:],
        },
    )
    span.set_attribute(names.ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR, summary[:MAX_MESSAGE]))


def tracer() -> trace.Tracer:
    """The tracer of this thread's service, else that of the process, else OpenTelemetry's global one (by default silent)."""
    return active_tracer.get() or (_process_tracer[0] if _process_tracer else trace.get_tracer(AGENT))


def set_process_tracer(tracer: trace.Tracer) -> None:
    """What threads use that no service has claimed."""
    _process_tracer[:] = [tracer]


def unset_process_tracer(tracer: trace.Tracer) -> None:
    """Undo ``set_process_tracer``, unless another has been set since."""
    if _process_tracer == [tracer]:
        _process_tracer.clear()


def _context_of(parent: str | None) -> otel_context.Context | None:
    if parent is None:
        return None
    ref = parse(parent)
    return (
        trace.set_span_in_context(NonRecordingSpan(_span_context(ref)), otel_context.Context())
        if ref
        else otel_context.Context()
    )


def _links(traceparents: Iterable[str | None]) -> list[Link]:
    return [Link(_span_context(ref)) for ref in map(parse, traceparents) if ref]


def _span_context(ref: SpanRef) -> SpanContext:
    return SpanContext(ref.trace_id, ref.span_id, is_remote=True, trace_flags=TraceFlags(ref.flags))


def _given(attributes: Attributes | None) -> dict[str, Value | Sequence[str]]:
    return {key: value for key, value in (attributes or {}).items() if value is not None}
