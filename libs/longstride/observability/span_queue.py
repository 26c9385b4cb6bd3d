"""Finished spans on their way out."""

from collections.abc import Callable, Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from longstride.observability.conveyor import Conveyor


class SpanQueue(SpanProcessor):
    """Puts each finished span on a conveyor. The SDK's own batch processor ignores the time-out of a flush."""

    def __init__(self, name: str, deliver: Callable[[Sequence[ReadableSpan]], None], capacity: int) -> None:
        self.conveyor: Conveyor[ReadableSpan] = Conveyor(name, deliver, capacity=capacity, batch=min(512, capacity))

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing to do: start markers are finished spans."""

    def on_end(self, span: ReadableSpan) -> None:
        self.conveyor.offer(span)

    def shutdown(self) -> None:
        self.conveyor.stop()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self.conveyor.flush(timeout_millis / 1000)
