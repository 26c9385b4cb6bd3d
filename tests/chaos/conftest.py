"""Deployments that can be hurt, with leases that run out soon."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.deployment import Deployment, deployed
from tests.support.servers import Servers

QUICK = {"LONGSTRIDE_LEASE_TTL_S": "3", "LONGSTRIDE_HEARTBEAT_S": "0.5"}


@pytest.fixture(scope="module")
def deployment(
    servers: Servers, module_database_url: str, amqp_url: str, bucket: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    folder: Path = tmp_path_factory.mktemp("chaos")
    with deployed(servers, module_database_url, amqp_url, bucket, folder, forked=True, **QUICK) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_left_running() -> None:
    """Services that a test restarts belong to the module's deployment, which ends them."""
