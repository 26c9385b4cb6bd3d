"""The files of the observability stack agree with each other and with what services export."""

import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from longstride.observability.metrics import Metrics
from longstride.storage.tables import Base
from tests.support import grafana
from tests.support.grafana import DASHBOARDS, INFRA

BUILT_IN = {"up", "ALERTS"}
PROMQL_WORDS = re.compile(r"\b(?:longstride|gen_ai)_[a-z_]+\b|\bup\b")


def read(path: str) -> Any:
    return yaml.safe_load((INFRA / path).read_text())


def exported() -> dict[str, set[str]]:
    """Series name → label names, of everything that services can export."""
    registry = CollectorRegistry()
    provider = MeterProvider(
        [PrometheusMetricReader(registry=registry, scope_info_enabled=False)], shutdown_on_exit=False
    )
    metrics = Metrics(provider.get_meter("test"), lambda: {"OTLP": 1})
    metrics.step_ended("ok")
    metrics.phase_ended("execute", "ok", 1.0)
    metrics.model_call("builtin", 1, 1)
    metrics.waited("planner", "generated", 1.0)
    metrics.outbox(1, 1.0)
    metrics.dead_letters(1)
    found: dict[str, set[str]] = {"up": {"job", "instance", "service"}}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def expressions() -> list[str]:
    rules = [rule["expr"] for group in read("prometheus/alerts.yml")["groups"] for rule in group["rules"]]
    targets = [
        t for path in DASHBOARDS for panel in grafana.panels(grafana.load(path)) for t in panel.get("targets", [])
    ]
    return rules + [target["expr"] for target in targets if target["datasource"]["type"] == "prometheus"]


@pytest.mark.parametrize("expression", expressions())
def test_expressions_use_series_and_labels_that_exist(expression: str) -> None:
    series = exported()
    words = set(PROMQL_WORDS.findall(expression))
    used = words & series.keys()
    assert used
    labels = set().union(*(series[name] for name in used))
    assert words - used <= labels, "neither a series nor a label of the series used"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize("arguments", [["check", "config", "prometheus.yml"], ["test", "rules", "alerts_test.yml"]])
def test_prometheus_takes_its_files(arguments: list[str]) -> None:
    done = subprocess.run(
        ["promtool", *arguments], cwd=INFRA / "prometheus", capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_says_what_and_what_to_do() -> None:
    for group in read("prometheus/alerts.yml")["groups"]:
        for rule in group["rules"]:
            assert set(rule["annotations"]) == {"summary", "description"}
            assert rule["labels"]["severity"] in {"info", "warning", "critical"}


def test_the_collector_s_pipelines_use_what_is_configured_and_nothing_is_idle() -> None:
    config = read("otel/collector.yaml")
    for kind in ("receivers", "processors", "exporters"):
        used = {name for pipeline in config["service"]["pipelines"].values() for name in pipeline[kind]}
        assert used == set(config[kind])
    assert set(config["service"]["extensions"]) == set(config["extensions"])
    assert set(config["service"]["pipelines"]) == {"traces", "metrics", "logs"}
    assert all(pipeline["processors"][0] == "memory_limiter" for pipeline in config["service"]["pipelines"].values())


def test_addresses_meet() -> None:
    """What one file sends to, another listens on."""
    collector, tempo, loki = (read(f"otel/{name}.yaml") for name in ("collector", "tempo", "loki"))
    sources = {
        source["uid"]: source for source in read("grafana/provisioning/datasources/longstride.yaml")["datasources"]
    }
    tempo_port = tempo["distributor"]["receivers"]["otlp"]["protocols"]["http"]["endpoint"].rpartition(":")[2]
    assert collector["exporters"]["otlphttp/tempo"]["endpoint"] == f"http://tempo:{tempo_port}"
    assert (
        collector["exporters"]["otlphttp/loki"]["endpoint"] == f"http://loki:{loki['server']['http_listen_port']}/otlp"
    )
    assert sources["longstride-tempo"]["url"] == f"http://tempo:{tempo['server']['http_listen_port']}"
    assert sources["longstride-loki"]["url"] == f"http://loki:{loki['server']['http_listen_port']}"
    jobs = {job["job_name"]: job for job in read("prometheus/prometheus.yml")["scrape_configs"]}
    pushed = collector["exporters"]["prometheus"]["endpoint"].rpartition(":")[2]
    assert jobs["otlp"]["static_configs"][0]["targets"] == [f"otel-collector:{pushed}"]


def test_no_file_holds_a_secret() -> None:
    for path in (INFRA / "grafana/provisioning").rglob("*.yaml"):
        for line in path.read_text().splitlines():
            if re.search(r"(?i)(password|secret|token):", line):
                assert re.search(r":\s*\$\{[A-Z_]+\}$", line), f"{path.name}: {line.strip()}"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_well_formed(path: Path) -> None:
    dashboard = grafana.load(path)
    assert dashboard["uid"] == path.stem
    panels = list(grafana.panels(dashboard))
    assert len({panel["id"] for panel in panels}) == len(panels)
    sources = {
        source["uid"]: source["type"]
        for source in read("grafana/provisioning/datasources/longstride.yaml")["datasources"]
    }
    for panel in panels:
        for target in panel.get("targets", []):
            assert sources[target["datasource"]["uid"]] == target["datasource"]["type"], panel["title"]
    for one, other in combinations(panels, 2):
        assert not overlap(one["gridPos"], other["gridPos"]), f"{one['title']!r} lies on {other['title']!r}"


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
    above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    return not (beside or above)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_uses_variables_and_tables_that_exist(path: Path) -> None:
    dashboard = grafana.load(path)
    text = path.read_text()
    declared = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = {name for name in re.findall(r"\$\{?([A-Za-z_]+)", text) if not name.startswith("__")}
    assert used == declared
    tables = {
        name
        for statement in grafana.statements(dashboard)
        for name in re.findall(r"(?:FROM|JOIN) ([a-z_]+)\b", statement.sql)
    }
    tables -= {"now", "coalesce"}  # of extract(epoch FROM …)
    assert {"tasks", "steps", "attempts", "outbox", "dead_letters"} <= tables <= set(Base.metadata.tables)
