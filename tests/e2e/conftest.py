"""A deployment that the tests of a module share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.deployment import Deployment, deployed
from tests.support.servers import Servers


@pytest.fixture(scope="module")
def deployment(
    servers: Servers, module_database_url: str, amqp_url: str, bucket: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    folder: Path = tmp_path_factory.mktemp("deployment")
    with deployed(servers, module_database_url, amqp_url, bucket, folder) as running:
        yield running


@pytest.fixture(scope="module")
def forked_deployment(
    servers: Servers, module_database_url: str, amqp_url: str, bucket: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """The same, up sooner: its processes are forked from one that has loaded them. They could be started from nothing, too."""
    folder: Path = tmp_path_factory.mktemp("deployment")
    with deployed(servers, module_database_url, amqp_url, bucket, folder, forked=True) as running:
        yield running
