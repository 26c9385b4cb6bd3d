"""Where a process's telemetry goes: one of each, however many services run in it."""

import time
from collections.abc import Mapping
from typing import Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry

from longstride.observability import logs
from longstride.observability.conveyor import Conveyor
from longstride.observability.endpoint import Endpoint
from longstride.observability.health import Health
from longstride.observability.log_line import LogLine
from longstride.observability.metrics import Metrics
from longstride.observability.otlp import log_sender, metric_reader, span_sender
from longstride.observability.pusher import Pusher
from longstride.observability.redact import Redactor
from longstride.observability.settings import TelemetrySettings
from longstride.observability.span_export import Scrubber, to_store
from longstride.observability.span_queue import SpanQueue
from longstride.observability.span_record import SpanWriter

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
        registry = CollectorRegistry()
        port = settings.metrics_port
        self.endpoint = None if port is None else Endpoint(settings.metrics_host, port, registry, health)
        url = settings.otlp_url("metrics")
        push = metric_reader(url, settings.otlp_timeout_s) if url else None
        readers = [PrometheusMetricReader(registry=registry, scope_info_enabled=False), *([push] if push else [])]
        self.meters = MeterProvider(readers, resource, shutdown_on_exit=False)
        self.metrics = Metrics(self.meters.get_meter(SCOPE), self.dropped)
        self._pusher = Pusher(push, settings.metrics_interval_s) if push else None

    def _span_queues(self, writer: SpanWriter | None, scrub: Scrubber) -> list[SpanQueue]:
        capacity = self._settings.span_queue
        queues = [SpanQueue("span store", to_store(writer, scrub), capacity)] if writer else []
        if url := self._settings.otlp_url("traces"):
            queues.append(SpanQueue("OTLP", span_sender(url, self._settings.otlp_timeout_s, scrub), capacity))
        return queues

    def _log_lines(self, resource: Resource) -> Conveyor[LogLine] | None:
        url = self._settings.otlp_url("logs")
        return Conveyor("OTLP logs", log_sender(url, self._settings.otlp_timeout_s, resource)) if url else None

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
