"""PostgreSQL goes away again after a service has found it there, before the service has started."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from infra.native import Stack
from longstride.storage.database import Database
from services.connections import Connections
from services.host import Host, check, open_host
from services.model_worker.shipped import publish_shipped
from services.telemetry.main import parts
from services.telemetry.sweeps import KEY
from tests.support.eventually import eventually


def sweeps(database: Database) -> bool:
    with database.begin() as uow:
        return uow.timers.next_in_s(KEY) is not None


def shipped(database: Database) -> bool:
    with database.begin() as uow:
        return uow.policies.latest("builtin") is not None


@pytest.mark.parametrize(
    ("begin", "done"), [(parts, sweeps), (publish_shipped, shipped)], ids=["telemetry", "trainer and embedded"]
)
def test_what_is_done_once_at_the_start_waits(
    database_url: str,
    stack: Stack,
    tmp_path: Path,
    begin: Callable[[Host], object],
    done: Callable[[Database], bool],
) -> None:
    url, broker = SecretStr(database_url), SecretStr("memory://start")
    host = open_host("telemetry", Connections(database_url=url, amqp_url=broker, artifacts_dir=tmp_path))
    check(host)
    assert not done(host.backbone.database)
    stack.kill("postgres")
    try:
        start = threading.Thread(target=begin, args=(host,))
        start.start()
        eventually(lambda: "for PostgreSQL" in host.startup())
    finally:
        stack.revive("postgres")
    start.join()
    assert done(host.backbone.database)
    host.backbone.close()
    host.telemetry.shutdown()
