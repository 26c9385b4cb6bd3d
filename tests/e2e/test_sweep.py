"""Telemetry keeps the schedule of the sweep, and the trainer's job process carries it out."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from longstride.observability.span_record import SpanRecord
from tests.support.deployment import Deployment, deployed
from tests.support.eventually import eventually
from tests.support.servers import Servers

DAY_NS = 86_400 * 10**9


@pytest.fixture
def keepers(servers: Servers, database_url: str, amqp_url: str, bucket: str, tmp_path: Path) -> Iterator[Deployment]:
    with deployed(servers, database_url, amqp_url, bucket, tmp_path, "trainer", forked=True) as running:
        yield running


def span(name: str, age_days: float) -> SpanRecord:
    began = time.time_ns() - int(age_days * DAY_NS)
    return SpanRecord(
        "a" * 32, f"{int(age_days):016x}", None, name, "internal", "test", None, None, "ok", None, began, began
    )


def names(deployment: Deployment) -> list[str]:
    with deployment.database.begin() as uow:
        return [span.name for span in uow.spans.for_trace("a" * 32)]


def test_what_is_too_old_is_swept_when_telemetry_starts_and_every_hour_from_then_on(keepers: Deployment) -> None:
    with keepers.database.begin() as uow:
        uow.spans.add_many([span("old", 31), span("young", 29)])
    keepers.start("telemetry")
    eventually(lambda: names(keepers) == ["young"])
    with keepers.database.begin() as uow:
        seconds = uow.timers.next_in_s("sweep")
    assert seconds is not None
    assert 3000 < seconds <= 3600
    eventually(lambda: not jobs_that_come_back(keepers))


def jobs_that_come_back(deployment: Deployment) -> bool:
    with deployment.database.begin() as uow:
        return uow.timers.next_in_s("job:") is not None
