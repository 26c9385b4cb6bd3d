"""From OpenTelemetry's finished spans to what leaves the process: redacted, without content unless asked for, JSON-safe."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from longstride.observability import names
from longstride.observability.redact import Redactor
from longstride.observability.span_record import JSON, SpanRecord, SpanStatus, SpanWriter

SERVICE_PREFIX = "longstride-"
"""``service.name`` is this and the service of the flow."""
STATUS: dict[StatusCode, SpanStatus] = {StatusCode.UNSET: "unset", StatusCode.OK: "ok", StatusCode.ERROR: "error"}
Attributes = Mapping[str, Any] | None


class Scrubber:
    """Takes secrets, and content that nobody asked for, out of a finished span."""

    def __init__(self, redact: Redactor, *, capture_content: bool) -> None:
        self._redact = redact
        self._withheld = frozenset() if capture_content else names.CONTENT

    def __call__(self, span: ReadableSpan) -> ReadableSpan:
        return ReadableSpan(
            name=self._redact(span.name),
            context=span.context,
            parent=span.parent,
            resource=span.resource,
            attributes=self._attributes(span.attributes),
            events=[Event(self._redact(e.name), self._attributes(e.attributes), e.timestamp) for e in span.events],
            links=[Link(link.context, self._attributes(link.attributes)) for link in span.links],
            kind=span.kind,
            status=self._status(span.status),
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=span.instrumentation_scope,
        )

    def _attributes(self, attributes: Attributes) -> dict[str, Any]:
        return {
            key: self._redact.value(key, value)
            for key, value in (attributes or {}).items()
            if key not in self._withheld
        }

    def _status(self, status: Status) -> Status:
        return Status(status.status_code, self._redact(status.description) if status.description else None)


def to_store(writer: SpanWriter, scrub: Scrubber) -> Callable[[Sequence[ReadableSpan]], None]:
    """Delivers spans to the span store."""
    return lambda spans: writer([record(scrub(span)) for span in spans])


def record(span: ReadableSpan) -> SpanRecord:
    """A finished span as a row."""
    assert span.context is not None, "a finished span has a context"
    attributes = json_safe(span.attributes or {})
    task_id, step = attributes.get(names.TASK_ID), attributes.get(names.STEP)
    return SpanRecord(
        trace_id=f"{span.context.trace_id:032x}",
        span_id=f"{span.context.span_id:016x}",
        parent_span_id=f"{span.parent.span_id:016x}" if span.parent else None,
        name=json_safe(span.name),
        kind=span.kind.name.lower(),
        service=json_safe(str(span.resource.attributes.get(names.SERVICE_NAME, "unknown"))).removeprefix(
            SERVICE_PREFIX
        ),
        task_id=task_id if isinstance(task_id, str) else None,
        step=step if isinstance(step, int) else None,
        status=STATUS[span.status.status_code],
        status_detail=json_safe(span.status.description) if span.status.description else None,
        started_ns=span.start_time or 0,
        ended_ns=span.end_time or span.start_time or 0,
        attributes=attributes,
        links=list(map(_link, span.links)),
        events=list(_events(span.events)),
    )


def _link(link: Link) -> JSON:
    return {
        "trace_id": f"{link.context.trace_id:032x}",
        "span_id": f"{link.context.span_id:016x}",
        "attributes": json_safe(link.attributes or {}),
    }


def _events(events: Iterable[Event]) -> Iterable[JSON]:
    for event in events:
        yield {"name": json_safe(event.name), "at_ns": event.timestamp, "attributes": json_safe(event.attributes or {})}


def json_safe(value: Any) -> Any:
    """A value that PostgreSQL takes as text or JSONB: what it cannot hold becomes ``�`` or text."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float():
            return value
        case Mapping():
            return {json_safe(str(key)): json_safe(item) for key, item in value.items()}
        case bytes():
            return value.hex()
        case Sequence() | set() | frozenset():
            return [json_safe(item) for item in value]
        case _:
            return json_safe(str(value))


KINDS = {kind.name.lower(): kind for kind in SpanKind}
