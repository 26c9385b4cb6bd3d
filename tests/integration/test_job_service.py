"""A job service as a process: what its children count reaches the collector, and its parent says how it is."""

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from infra.native.ports import Ports
from longstride.contracts.artifact import ref_for
from longstride.contracts.v1.commands import UpdatePolicy
from longstride.observability import names
from tests.support.cuttable import Cuttable
from tests.support.deployment import Deployment
from tests.support.eventually import eventually
from tests.support.otlp_receiver import OtlpReceiver, attributes, otlp_receiver
from tests.support.servers import Servers

BATCH = ref_for(b"{}", session="s", kind="batch", media_type="application/json")


class JobService:
    """A trainer with one child, as compose runs it: Prometheus reads its port, and metrics are not to be pushed."""

    def __init__(self, deployment: Deployment, port: int, network: ExitStack) -> None:
        self.deployment = deployment
        self.lose_broker = network.close
        self._port = port

    @property
    def children(self) -> list[int]:
        return [child.pid for child in psutil.Process(self.deployment.processes["trainer"].pid).children()]

    def get(self, page: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/{page}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except urllib.error.URLError:
            return 0, "{}"

    def health(self) -> tuple[int, dict[str, str | None]]:
        status, body = self.get("healthz")
        return status, json.loads(body).get("checks", {})

    def asks_for_nothing(self) -> None:
        """An update from a version that is not there: handled, and given up at once."""
        self.deployment.send(UpdatePolicy(batch_id="batch_x", batch=BATCH, policy="builtin", base_version=99), "task_x")


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as receiver:
        yield receiver


@pytest.fixture
def service(
    servers: Servers, database_url: str, amqp_url: str, bucket: str, tmp_path: Path, receiver: OtlpReceiver
) -> Iterator[JobService]:
    where = urlsplit(amqp_url)
    with ExitStack() as network, Ports(tmp_path, ("metrics",)) as ports:
        relay = network.enter_context(Cuttable(where.hostname or "", where.port or 0))
        own = where._replace(netloc=f"{where.username}:{where.password}@127.0.0.1:{relay.port}").geturl()
        deployment = Deployment(servers, database_url, own, bucket, tmp_path, forked=True)
        try:
            deployment.start(
                "trainer",
                LONGSTRIDE_METRICS_PORT=str(ports.numbers["metrics"]),
                LONGSTRIDE_METRICS_INTERVAL_S="0.1",
                OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url,
                OTEL_METRICS_EXPORTER="none",
            )
            service = JobService(deployment, ports.numbers["metrics"], network)
            eventually(lambda: service.health() == (200, {"broker": None, "children": None}))
            yield service
        finally:
            if "trainer" in deployment.processes:
                deployment.kill("trainer")
            deployment.stop()


def handled(receiver: OtlpReceiver) -> dict[str, int]:
    """Instance → how many updates it says that it began to handle."""
    counts: dict[str, int] = {}
    for about, metric in list(receiver.metrics):
        assert about[names.SERVICE_NAME] == "longstride-trainer"
        for point in metric.histogram.data_points if metric.name == names.QUEUE_WAIT else ():
            if attributes(point.attributes)[names.MESSAGE_TYPE] == "update_policy":
                counts[about[names.SERVICE_INSTANCE]] = point.count
    return counts


def test_what_a_child_counts_arrives_under_an_instance_of_its_own(service: JobService, receiver: OtlpReceiver) -> None:
    service.asks_for_nothing()
    eventually(lambda: list(handled(receiver).values()) == [1])
    (first,) = handled(receiver)
    service.asks_for_nothing()
    eventually(lambda: handled(receiver) == {first: 2})
    (child,) = service.children
    os.kill(child, signal.SIGKILL)
    eventually(lambda: service.children and service.children != [child])
    service.asks_for_nothing()
    counts: Any = eventually(lambda: len(found := handled(receiver)) == 2 and found)
    assert counts.pop(first) == 2
    assert list(counts.values()) == [1]
    assert "longstride_queue_wait_seconds_count" not in service.get("metrics")[1], "the parent handles no jobs"
    assert {about[names.SERVICE_INSTANCE] for about, _ in receiver.metrics} == {first, *counts}, "the parent pushes"


def test_the_parent_says_whether_jobs_can_arrive_and_be_carried_out(service: JobService) -> None:
    assert service.health() == (200, {"broker": None, "children": None})
    service.lose_broker()
    _, checks = eventually(lambda: (said := service.health())[0] == 503 and said)
    assert checks == {"broker": "not connected to the broker: jobs wait in their queue", "children": None}
