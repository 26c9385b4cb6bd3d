"""One call at the start of a service, and it is observed."""

import atexit
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from longstride.contracts.ids import incarnation as new_incarnation
from longstride.observability import logs, names
from longstride.observability.context import bind
from longstride.observability.health import Check, Health
from longstride.observability.metrics import Metrics
from longstride.observability.outlets import SCOPE, Outlets
from longstride.observability.pinned_ids import PinnedIds
from longstride.observability.redact import Redactor
from longstride.observability.settings import TelemetrySettings
from longstride.observability.span_export import SERVICE_PREFIX
from longstride.observability.span_record import SpanWriter
from longstride.observability.spans import active_tracer, set_process_tracer, unset_process_tracer

FLUSH_S = 2.0
"""Seconds that telemetry may hold up the end of a job or a process, at the most."""
MAX_VALUE, MAX_CONTENT = 4096, 65_536
"""Characters of one attribute, without and with content."""


def setup(
    service: str,
    settings: TelemetrySettings | None = None,
    *,
    writer: SpanWriter | None = None,
    incarnation: str | None = None,
    checks: Mapping[str, Check] | None = None,
) -> "Telemetry":
    """Start telemetry for a service of the flow: logs at once; spans to ``writer`` and over OTLP; metrics and health over HTTP.

    Nothing here blocks or fails a step later on: queues are bounded, threads start with the first item, in the process
    that makes it. More services in one process: ``telemetry.beside``. ``checks`` are asked from the first moment on.

    Raises:
        pydantic.ValidationError: a setting in the environment is wrong.
        OSError: the metrics port is taken.
    """
    settings = settings or TelemetrySettings()
    redact = Redactor.of(os.environ)
    logs.configure(settings.log_level, settings.log_format, redact=redact, service=service)
    identity = incarnation or new_incarnation()
    outlets = Outlets(settings, resource(service, identity), writer, redact, Health(checks))
    telemetry = Telemetry(service, identity, settings, outlets)
    set_process_tracer(telemetry.tracer)
    atexit.register(telemetry.shutdown)
    return telemetry


class Telemetry:
    """What one service in this process reports through."""

    def __init__(self, service: str, incarnation: str, settings: TelemetrySettings, outlets: Outlets) -> None:
        self.service = service
        self.incarnation = incarnation
        self.settings = settings
        self._outlets = outlets
        self.tracer = _provider(resource(service, incarnation), settings, outlets).get_tracer(
            SCOPE, version("longstride")
        )

    @property
    def metrics(self) -> Metrics:
        """The process's instruments."""
        return self._outlets.metrics

    @property
    def health(self) -> Health:
        """The process's health checks."""
        return self._outlets.health

    @property
    def port(self) -> int | None:
        """Where ``/metrics`` and ``/healthz`` are; ``None``: nowhere."""
        return self._outlets.endpoint.port if self._outlets.endpoint else None

    @property
    def dropped(self) -> dict[str, int]:
        """Spans and log lines dropped so far, an outlet each."""
        return dict(self._outlets.dropped())

    def beside(self, service: str, incarnation: str | None = None) -> "Telemetry":
        """Telemetry of another service in this process; queues, metrics, logs, health and shutdown are shared."""
        return Telemetry(service, incarnation or new_incarnation(), self.settings, self._outlets)

    @contextmanager
    def activate(self) -> Iterator[None]:
        """Spans and log lines of this thread are this service's for the time of a ``with`` block. Threads do not inherit it."""
        token = active_tracer.set(self.tracer)
        try:
            with bind({names.SERVICE_NAME: self.service}):
                yield
        finally:
            active_tracer.reset(token)

    def flush(self, timeout_s: float = FLUSH_S) -> bool:
        """Send what is queued, as at the end of a job in a child that may be killed; ``False`` when the time is over first."""
        return self._outlets.flush(timeout_s)

    def shutdown(self, timeout_s: float = FLUSH_S) -> bool:
        """Send what is queued, and stop; ``False`` when something was lost."""
        atexit.unregister(self.shutdown)
        unset_process_tracer(self.tracer)
        return self._outlets.close(timeout_s)


def resource(service: str, incarnation: str) -> Resource:
    """Who reports."""
    return Resource.create(
        {
            names.SERVICE_NAME: SERVICE_PREFIX + service,
            names.SERVICE_INSTANCE: incarnation,
            names.SERVICE_VERSION: version("longstride"),
            names.INCARNATION: incarnation,
        }
    )


def _provider(resource: Resource, settings: TelemetrySettings, outlets: Outlets) -> TracerProvider:
    """Always on, whatever a client's own traceparent says: the span store is part of the record of a task."""
    limits = SpanLimits(max_span_attribute_length=MAX_CONTENT if settings.capture_content else MAX_VALUE)
    provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False, id_generator=PinnedIds(), span_limits=limits)
    for queue in outlets.span_queues:
        provider.add_span_processor(queue)
    return provider
