"""A real Prometheus reads a service's ``/metrics`` with the alerts loaded, where one is installed."""

import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from longstride.observability.settings import TelemetrySettings
from longstride.observability.setup import Telemetry, setup
from tests.support.eventually import eventually
from tests.support.grafana import INFRA

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    telemetry = setup("planner", TelemetrySettings(otlp_endpoint=None, metrics_port=0, log_format="json"))
    yield telemetry
    telemetry.shutdown(1)


@pytest.fixture
def prometheus(telemetry: Telemetry, tmp_path: Path) -> Iterator[str]:
    """The URL of a server that reads ``telemetry`` every 100 ms."""
    config = {
        "global": {"scrape_interval": "100ms", "evaluation_interval": "100ms"},
        "rule_files": [str(INFRA / "prometheus/alerts.yml")],
        "scrape_configs": [
            {"job_name": "longstride", "static_configs": [{"targets": [f"127.0.0.1:{telemetry.port}"]}]}
        ],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    url = f"127.0.0.1:{free_port()}"
    command = [
        "prometheus",
        f"--config.file={tmp_path}/prometheus.yml",
        f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address={url}",
    ]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            yield f"http://{url}"
        finally:
            server.terminate()


def query(url: str, expression: str) -> list[Any]:
    """The samples of an instant query; none while the server starts."""
    try:
        with urllib.request.urlopen(f"{url}/api/v1/query?query={urllib.parse.quote(expression)}", timeout=5) as answer:
            found: list[Any] = json.load(answer)["data"]["result"]
            return found
    except OSError:
        return []


def value(url: str, expression: str) -> float | None:
    samples = query(url, expression)
    return float(samples[0]["value"][1]) if samples else None


def test_prometheus_reads_what_a_service_serves(telemetry: Telemetry, prometheus: str) -> None:
    eventually(lambda: value(prometheus, "up") == 1, 30)
    telemetry.metrics.task_ended("succeeded", "checks_passed")
    for seconds in (0.2, 0.2, 4.0):
        telemetry.metrics.phase_ended("execute", "ok", seconds)
    eventually(lambda: value(prometheus, "sum(longstride_step_duration_seconds_count)") == 3, 30)
    assert value(prometheus, 'longstride_tasks_ended_total{longstride_outcome="succeeded"}') == 1
    median = value(prometheus, "histogram_quantile(0.5, sum by (le) (longstride_step_duration_seconds_bucket))")
    assert median is not None
    assert 0.1 < median <= 0.25
    telemetry.metrics.attempts_lost("execute", "given_up")  # its series was born at 0: the first event is an increase
    eventually(lambda: query(prometheus, 'ALERTS{alertname="LongstrideGivenUp", alertstate="firing"}'), 30)
    (alert,) = query(prometheus, 'ALERTS{alertname="LongstrideGivenUp"}')
    assert alert["metric"]["longstride_phase"] == "execute"
