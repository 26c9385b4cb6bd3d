"""Span ids that are random, except where a task's id decides them."""

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from longstride.observability.spans import pinned


class PinnedIds(RandomIdGenerator):
    """The SDK's generator; a span started under ``spans.pinned`` gets the ids given there."""

    def generate_trace_id(self) -> int:
        ref = pinned.get()
        return ref.trace_id if ref else super().generate_trace_id()

    def generate_span_id(self) -> int:
        ref = pinned.get()
        return ref.span_id if ref else super().generate_span_id()
