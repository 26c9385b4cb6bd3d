"""An OTLP/HTTP receiver that decodes what it gets with OpenTelemetry's own protobuf classes, and can misbehave."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

Mood = Literal["well", "refusing", "hanging"]


class OtlpReceiver:
    """Spans, metrics and log records, as (resource attributes, decoded message) pairs."""

    def __init__(self) -> None:
        self.mood: Mood = "well"
        self.requests = 0
        self.spans: list[tuple[dict[str, Any], Any]] = []
        self.metrics: list[tuple[dict[str, Any], Any]] = []
        self.logs: list[tuple[dict[str, Any], Any]] = []
        self.release = threading.Event()
        """Lets hanging requests go."""
        handler = type("Handler", (_Handler,), {"receiver": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()

    def span(self, name: str) -> Any:
        """The one span of this name."""
        (found,) = [span for _, span in self.spans if span.name == name]
        return found

    def take(self, path: str, body: bytes) -> None:
        match path:
            case "/v1/traces":
                for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                    about = attributes(group.resource.attributes)
                    self.spans += [(about, span) for scope in group.scope_spans for span in scope.spans]
            case "/v1/metrics":
                for group in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    about = attributes(group.resource.attributes)
                    self.metrics += [(about, metric) for scope in group.scope_metrics for metric in scope.metrics]
            case "/v1/logs":
                for group in ExportLogsServiceRequest.FromString(body).resource_logs:
                    about = attributes(group.resource.attributes)
                    self.logs += [(about, record) for scope in group.scope_logs for record in scope.log_records]
            case _:
                raise AssertionError(f"not an OTLP path: {path}")


class _Handler(BaseHTTPRequestHandler):
    receiver: OtlpReceiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.receiver.requests += 1
        if self.receiver.mood == "hanging":
            self.receiver.release.wait(60)
            return
        if self.receiver.mood == "well":
            self.receiver.take(self.path, gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
        self.send_response(200 if self.receiver.mood == "well" else 500)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def attributes(pairs: Any) -> dict[str, Any]:
    """Protobuf's key-value pairs as a dictionary."""
    return {pair.key: _plain(pair.value) for pair in pairs}


def _plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """A receiver on a free port."""
    receiver = OtlpReceiver()
    try:
        yield receiver
    finally:
        receiver.close()
