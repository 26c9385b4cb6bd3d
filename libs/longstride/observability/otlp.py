"""OTLP over HTTP: spans, metrics and log records to any collector."""

import logging
import math
from collections.abc import Callable, Sequence

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from longstride.observability.log_line import LogLine
from longstride.observability.span_export import Scrubber

logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)  # the conveyor says it, once an outage


class OtlpUnavailable(Exception):
    """The OTLP receiver did not take a batch."""


def span_sender(endpoint: str, timeout_s: float, scrub: Scrubber) -> Callable[[Sequence[ReadableSpan]], None]:
    """Delivers spans to ``<endpoint>/v1/traces``."""
    exporter = OTLPSpanExporter(f"{endpoint}/v1/traces", timeout=timeout_s)

    def send(spans: Sequence[ReadableSpan]) -> None:
        if exporter.export([scrub(span) for span in spans]) is not SpanExportResult.SUCCESS:
            raise OtlpUnavailable(f"{endpoint}/v1/traces did not take {len(spans)} spans")

    return send


def log_sender(endpoint: str, timeout_s: float, resource: Resource) -> Callable[[Sequence[LogLine]], None]:
    """Delivers log lines to ``<endpoint>/v1/logs``."""
    exporter = OTLPLogExporter(f"{endpoint}/v1/logs", timeout=timeout_s)

    def send(lines: Sequence[LogLine]) -> None:
        records = [ReadableLogRecord(_log_record(line), resource) for line in lines]
        if exporter.export(records) is not LogRecordExportResult.SUCCESS:
            raise OtlpUnavailable(f"{endpoint}/v1/logs did not take {len(lines)} log lines")

    return send


def metric_reader(endpoint: str, timeout_s: float) -> MetricReader:
    """Sends metrics to ``<endpoint>/v1/metrics`` whenever it is flushed, and never by itself: its own thread would
    start again in a forked child, which would then report the parent's counters as its own."""
    exporter = OTLPMetricExporter(f"{endpoint}/v1/metrics", timeout=timeout_s)
    return PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)


def _log_record(line: LogLine) -> LogRecord:
    return LogRecord(
        timestamp=line.at_ns,
        context=set_span_in_context(NonRecordingSpan(_span_context(line))),
        severity_text=line.level,
        severity_number=SEVERITIES.get(line.level, SeverityNumber.INFO),
        body=line.message,
        attributes=line.attributes,
    )


def _span_context(line: LogLine) -> SpanContext:
    ref = line.span
    return SpanContext(ref.trace_id, ref.span_id, False, TraceFlags(ref.flags)) if ref else SpanContext(0, 0, False)


SEVERITIES = {
    "DEBUG": SeverityNumber.DEBUG,
    "INFO": SeverityNumber.INFO,
    "WARNING": SeverityNumber.WARN,
    "ERROR": SeverityNumber.ERROR,
    "CRITICAL": SeverityNumber.FATAL,
}
