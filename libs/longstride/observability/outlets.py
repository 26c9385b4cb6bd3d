"""Where a process's telemetry goes: one of each, however many services run in it.

What Prometheus and OTLP need is loaded where they are asked for: both together take a tenth of the start of a service.
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource

from longstride.observability import logs
from longstride.observability.conveyor import Conveyor
from longstride.observability.health import Health
from longstride.observability.log_line import LogLine
from longstride.observability.metrics import Metrics
from longstride.observability.pusher import Pusher
from longstride.observability.redact import Redactor
from longstride.observability.settings import TelemetrySettings
from longstride.observability.span_export import Scrubber, to_store
from longstride.observability.span_queue import SpanQueue
from longstride.observability.span_record import SpanWriter

if TYPE_CHECKING:
    from longstride.observability.endpoint import Endpoint

SCOPE = "longstride"


class Outlets:
    """Span queues, log lines, metrics and health of a process."""

    def __init__(
        self,
        settings: TelemetrySettings,
        resource: Resource,
        writer: SpanWriter | None,
        redact: Redactor,
        health: Health,
    ) -> None:
        self._settings = settings
        self.span_queues = self._span_queues(writer, Scrubber(redact, capture_content=settings.capture_content))
        self._log_queue = self._log_lines(resource)
        make_line = logs.line_maker(redact, None)
        self._log_handler = logs.offer_lines(self._log_queue.offer, make_line) if self._log_queue else None
        self.health = health
        self.endpoint: Endpoint | None
        self.endpoint, read = self._read(health)
        push = self._pushed()
        readers = [reader for reader in (read, push) if reader is not None]
        self.meters = MeterProvider(readers, resource, shutdown_on_exit=False)
        self.metrics = Metrics(self.meters.get_meter(SCOPE), self.dropped)
        self._pusher = Pusher(push, settings.metrics_interval_s) if push else None

    def _read(self, health: Health) -> "tuple[Endpoint, MetricReader] | tuple[None, None]":
        """Where Prometheus reads the metrics."""
        port = self._settings.metrics_port
        if port is None:
            return None, None
        from longstride.observability.endpoint import serve

        return serve(self._settings.metrics_host, port, health)

    def _pushed(self) -> MetricReader | None:
        """What sends them over OTLP."""
        url = self._settings.otlp_url("metrics")
        if url is None:
            return None
        from longstride.observability.otlp import metric_reader

        return metric_reader(url, self._settings.otlp_timeout_s)

    def _span_queues(self, writer: SpanWriter | None, scrub: Scrubber) -> list[SpanQueue]:
        capacity = self._settings.span_queue
        queues = [SpanQueue("span store", to_store(writer, scrub), capacity)] if writer else []
        if url := self._settings.otlp_url("traces"):
            from longstride.observability.otlp import span_sender

            queues.append(SpanQueue("OTLP", span_sender(url, self._settings.otlp_timeout_s, scrub), capacity))
        return queues

    def _log_lines(self, resource: Resource) -> Conveyor[LogLine] | None:
        url = self._settings.otlp_url("logs")
        if url is None:
            return None
        from longstride.observability.otlp import log_sender

        return Conveyor("OTLP logs", log_sender(url, self._settings.otlp_timeout_s, resource))

    @property
    def conveyors(self) -> list[Conveyor[Any]]:
        """Every queue out of the process."""
        return [queue.conveyor for queue in self.span_queues] + ([self._log_queue] if self._log_queue else [])

    def dropped(self) -> Mapping[str, int]:
        """How many spans and log lines each outlet has dropped so far."""
        return {conveyor.name: conveyor.dropped for conveyor in self.conveyors}

    def flush(self, timeout_s: float) -> bool:
        """Wait for all queues at once, as ``Conveyor.flush`` does."""
        deadline = time.monotonic() + timeout_s
        for conveyor in self.conveyors:
            conveyor.flush(0)
        flushed = [conveyor.flush(_left(deadline)) for conveyor in self.conveyors]
        return all(flushed)

    def close(self, timeout_s: float) -> bool:
        """Deliver what can be delivered in the time, and stop. Again: nothing happens."""
        deadline = time.monotonic() + timeout_s
        parts: list[Conveyor[Any] | Pusher] = [*self.conveyors, *([self._pusher] if self._pusher else [])]
        for part in parts:
            part.stop()
        logs.remove(self._log_handler)
        if self.endpoint is not None:
            self.endpoint.close()
            self.endpoint = None
        closed = [part.close(_left(deadline)) for part in parts]
        return all(closed)


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
