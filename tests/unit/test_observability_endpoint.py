"""/metrics and /healthz, over real HTTP, and the numbers behind them."""

import json
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from longstride.observability import names
from longstride.observability.endpoint import Endpoint
from longstride.observability.health import Health
from longstride.observability.settings import TelemetrySettings
from longstride.observability.setup import Telemetry, setup
from longstride.observability.spans import span


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    settings = TelemetrySettings(otlp_endpoint=None, metrics_port=0, log_format="json", span_queue=1)
    telemetry = setup("planner", settings, writer=lambda spans: None)
    yield telemetry
    telemetry.shutdown(1)


def get(telemetry: Telemetry, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{telemetry.port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def samples(telemetry: Telemetry) -> dict[tuple[str, frozenset[str]], float]:
    """(name, label values) → value, as Prometheus's own parser reads them."""
    _, text = get(telemetry, "/metrics")
    return {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_number_is_served_under_the_name_that_alerts_use(telemetry: Telemetry) -> None:
    metrics = telemetry.metrics
    metrics.task_ended("succeeded", "checks_passed")
    metrics.task_ended("succeeded", "checks_passed")
    metrics.step_ended("ok")
    metrics.phase_ended("execute", "ok", 0.3)
    metrics.model_call("builtin@7", 512, 40)
    metrics.model_call("remote:https://user:password@host/v1", 1, 1)
    metrics.waited("planner", "generated", 0.02)
    metrics.waited("planner", "generated", -5)  # a stranger's clock
    metrics.outbox(7, 2.5)
    metrics.outbox(3, 1.5)
    metrics.attempts_lost("execute", "retried", 2)
    metrics.dead_letters(4)
    found = samples(telemetry)
    assert found["longstride_tasks_ended_total", frozenset({"succeeded", "checks_passed"})] == 2
    assert found["longstride_steps_total", frozenset({"ok"})] == 1
    assert found["longstride_step_duration_seconds_sum", frozenset({"execute", "ok"})] == pytest.approx(0.3)
    assert found["longstride_step_duration_seconds_bucket", frozenset({"execute", "ok", "0.25"})] == 0
    assert found["longstride_step_duration_seconds_bucket", frozenset({"execute", "ok", "0.5"})] == 1
    assert found["gen_ai_client_token_usage_sum", frozenset({"builtin", "chat", "input"})] == 512
    assert found["gen_ai_client_token_usage_sum", frozenset({"builtin", "chat", "output"})] == 40
    assert found["gen_ai_client_token_usage_sum", frozenset({"remote", "chat", "output"})] == 1
    assert found["longstride_queue_wait_seconds_count", frozenset({"planner", "generated"})] == 2
    assert found["longstride_queue_wait_seconds_sum", frozenset({"planner", "generated"})] == pytest.approx(0.02)
    assert found["longstride_outbox_backlog", frozenset()] == 3
    assert found["longstride_outbox_age_seconds", frozenset()] == 1.5
    assert found["longstride_attempts_lost_total", frozenset({"execute", "retried"})] == 2
    assert found["longstride_dead_letters", frozenset()] == 4


def test_what_alerts_watch_begins_at_zero(telemetry: Telemetry) -> None:
    """A series that is born with its first event shows no increase."""
    found = samples(telemetry)
    assert found["longstride_tasks_ended_total", frozenset({"failed", "infrastructure"})] == 0
    assert found["longstride_attempts_lost_total", frozenset({"execute", "given_up"})] == 0
    assert found["longstride_telemetry_dropped_total", frozenset({"span store"})] == 0


def test_dropped_telemetry_shows_in_the_metrics(telemetry: Telemetry) -> None:
    for _ in range(500):
        with span(names.DECIDE):
            pass
    telemetry.flush(10)
    dropped = telemetry.dropped["span store"]
    assert dropped > 0
    assert samples(telemetry)["longstride_telemetry_dropped_total", frozenset({"span store"})] == dropped


def test_health_is_the_worst_of_its_checks(telemetry: Telemetry) -> None:
    assert get(telemetry, "/healthz") == (200, json.dumps({"status": "ok", "checks": {}}, indent=1))
    telemetry.health.register("broker", lambda: None)
    assert get(telemetry, "/healthz")[0] == 200
    telemetry.health.register("progress", lambda: "a backlog of 7 and nothing claimed for 60 s")
    telemetry.health.register("bad", lambda: str(1 // 0))
    status, body = get(telemetry, "/healthz")
    assert status == 503
    assert json.loads(body) == {
        "status": "failing",
        "checks": {
            "broker": None,
            "progress": "a backlog of 7 and nothing claimed for 60 s",
            "bad": "ZeroDivisionError: integer division or modulo by zero",
        },
    }
    telemetry.health.register("progress", lambda: None)
    telemetry.health.register("bad", lambda: None)
    assert get(telemetry, "/healthz")[0] == 200


def test_other_paths_are_not_found(telemetry: Telemetry) -> None:
    assert get(telemetry, "/etc/passwd")[0] == 404


def test_a_client_that_says_nothing_does_not_hold_others_up(telemetry: Telemetry) -> None:
    with socket.create_connection(("127.0.0.1", telemetry.port or 0)):
        assert get(telemetry, "/healthz")[0] == 200


def test_a_taken_port_is_named(telemetry: Telemetry) -> None:
    with pytest.raises(OSError, match=rf"127.0.0.1:{telemetry.port} .*LONGSTRIDE_METRICS_PORT"):
        Endpoint("127.0.0.1", telemetry.port or 0, CollectorRegistry(), Health())


def test_a_forked_child_does_not_hold_the_port(telemetry: Telemetry) -> None:
    port = telemetry.port or 0
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write_end)
        os.read(read_end, 1)  # until the parent is done
        os._exit(0)
    telemetry.shutdown(1)
    again = Endpoint("127.0.0.1", port, CollectorRegistry(), Health())
    again.close()
    os.close(write_end)
    os.close(read_end)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
