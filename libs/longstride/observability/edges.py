"""Who talks to whom: as the flow says, and as traces show. A test compares the two."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from longstride.contracts.flow import FLOW
from longstride.observability import names
from longstride.observability.span_record import StoredSpan

TIMED = frozenset(row.message for row in FLOW if row.producers == ("timers",))
"""Messages that a service asks to be sent later: their link leads to it, the flow counts the timers as their sender."""
OUTSIDE = "client"
"""Whoever sends a message without a traceparent, or with one of a trace that is not ours."""


class Edge(NamedTuple):
    """One message type between two services of the flow."""

    producer: str
    message: str
    consumer: str

    def __str__(self) -> str:
        return f"{self.producer} -{self.message}-> {self.consumer}"


def expected_edges(consumers: Collection[str] | None = None) -> frozenset[Edge]:
    """The edges of ``contracts.flow``, to ``consumers`` alone where given: a client that is a stranger's program is not traced."""
    return frozenset(
        Edge(producer, row.message, row.consumer)
        for row in FLOW
        for producer in row.producers
        if consumers is None or row.consumer in consumers
    )


def observed_edges(spans: Iterable[StoredSpan]) -> frozenset[Edge]:
    """The edges that consumer spans prove: each is linked to the span that made its message, which names its service."""
    known = {(span.trace_id, span.span_id): span for span in spans}
    return frozenset(
        Edge(_producer(span, known), str(span.attributes[names.MESSAGE_TYPE]), part(span))
        for span in known.values()
        if span.kind == "consumer" and names.MESSAGE_TYPE in span.attributes
    )


def part(span: StoredSpan) -> str:
    """The service of the flow that a span speaks for: its role, else its process's service."""
    return str(span.attributes.get(names.ROLE) or span.service)


def _producer(span: StoredSpan, known: dict[tuple[str, str], StoredSpan]) -> str:
    made_by = next(filter(None, (known.get((link["trace_id"], link["span_id"])) for link in span.links)), None)
    if made_by is None:
        return OUTSIDE
    return "timers" if span.attributes[names.MESSAGE_TYPE] in TIMED else part(made_by)
