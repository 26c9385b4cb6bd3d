"""A finished span as it is stored: the columns of the ``spans`` table, in plain Python."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

SpanStatus = Literal["unset", "ok", "error"]
JSON = dict[str, Any]


class StoredSpan(Protocol):
    """What readers need of a span: a ``SpanRecord`` or a row of the ``spans`` table."""

    @property
    def trace_id(self) -> str: ...
    @property
    def span_id(self) -> str: ...
    @property
    def parent_span_id(self) -> str | None: ...
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def service(self) -> str: ...
    @property
    def task_id(self) -> str | None: ...
    @property
    def step(self) -> int | None: ...
    @property
    def status(self) -> str: ...
    @property
    def status_detail(self) -> str | None: ...
    @property
    def started_ns(self) -> int: ...
    @property
    def ended_ns(self) -> int: ...
    @property
    def attributes(self) -> JSON: ...
    @property
    def links(self) -> list[Any]: ...
    @property
    def events(self) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class SpanRecord:
    """JSON-safe throughout: no NUL characters, lone surrogates, infinities or bytes, which PostgreSQL would refuse."""

    trace_id: str
    """32 hex digits."""
    span_id: str
    """16 hex digits."""
    parent_span_id: str | None
    name: str
    kind: str
    """internal, server, client, producer or consumer."""
    service: str
    """As in ``contracts.flow``, without the ``longstride-`` of ``service.name``."""
    task_id: str | None
    step: int | None
    status: SpanStatus
    status_detail: str | None
    started_ns: int
    """Unix nanoseconds."""
    ended_ns: int
    attributes: JSON = field(default_factory=dict)
    links: list[Any] = field(default_factory=list)
    """``{"trace_id", "span_id", "attributes"}`` each."""
    events: list[Any] = field(default_factory=list)
    """``{"name", "at_ns", "attributes"}`` each."""


class SpanWriter(Protocol):
    """Where finished spans are kept. Called from a background thread; writing a span again must not change anything."""

    def __call__(self, spans: Sequence[SpanRecord], /) -> None:
        """Store the spans, or raise."""


class MemorySpans:
    """The in-memory twin of the ``spans`` table."""

    def __init__(self) -> None:
        self._spans: dict[tuple[str, str], SpanRecord] = {}

    def __call__(self, spans: Sequence[SpanRecord], /) -> None:
        for span in spans:
            self._spans.setdefault((span.trace_id, span.span_id), span)

    def of_task(self, task_id: str) -> list[SpanRecord]:
        """A task's spans, in the order of their start."""
        return sorted((span for span in self.all() if span.task_id == task_id), key=lambda span: span.started_ns)

    def all(self) -> list[SpanRecord]:
        """Every span, in the order of writing."""
        return list(self._spans.values())
