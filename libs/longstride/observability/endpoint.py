"""``/metrics`` in Prometheus's format and ``/healthz``, over HTTP."""

import json
import os
import threading
import weakref
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics.export import MetricReader
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from longstride.observability.health import Health

POLL_S = 0.1
"""How soon the server notices that it is to stop."""


def serve(host: str, port: int, health: Health) -> "tuple[Endpoint, MetricReader]":
    """An endpoint, and the reader whose meters it shows.

    Raises:
        OSError: the port is taken; the message names it.
    """
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(registry=registry, scope_info_enabled=False)
    return Endpoint(host, port, registry, health), reader


class Endpoint:
    """A server in threads of its own.

    Raises:
        OSError: the port is taken; the message names it.
    """

    def __init__(self, host: str, port: int, registry: CollectorRegistry, health: Health) -> None:
        handler = type("Handler", (_Handler,), {"registry": registry, "health": health})
        try:
            self._server = ThreadingHTTPServer((host, port), handler)
        except OSError as error:
            raise OSError(
                error.errno,
                f"cannot serve metrics on {host}:{port} ({error.strerror}); set LONGSTRIDE_METRICS_PORT to a free port",
            ) from error
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        """The port it listens on, also when 0 was asked for."""
        _endpoints.add(self)
        threading.Thread(
            target=self._server.serve_forever, args=(POLL_S,), name="metrics-endpoint", daemon=True
        ).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def _forget(self) -> None:
        self._server.socket.close()


class _Handler(BaseHTTPRequestHandler):
    registry: ClassVar[CollectorRegistry]
    health: ClassVar[Health]
    timeout = 10
    """Seconds for a client to say what it wants."""

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(200, CONTENT_TYPE_LATEST, generate_latest(self.registry))
            case "/healthz":
                report = self.health.report()
                well = not any(report.values())
                body = json.dumps({"status": "ok" if well else "failing", "checks": report}, indent=1)
                self._answer(200 if well else 503, "application/json", body.encode())
            case _:
                self._answer(404, "text/plain", b"there are /metrics and /healthz\n")

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are not news."""


_endpoints: "weakref.WeakSet[Endpoint]" = weakref.WeakSet()


def _after_fork() -> None:
    """A child that kept the listening socket would hold the port after its parent's death."""
    for endpoint in list(_endpoints):
        endpoint._forget()


os.register_at_fork(after_in_child=_after_fork)
