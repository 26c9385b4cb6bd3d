"""Fixtures of every test: a private database, virtual host and bucket, and a look at what a test leaves running.

A test that asks for one needs servers. Without them it is skipped, except in continuous integration (``CI`` set), where
it fails: there a missing server is a fault, not a circumstance.
"""

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from infra.native import Stack
from tests.support import leaks
from tests.support import servers as under_test
from tests.support.servers import Servers
from tests.support.turns import turn

ROOT = Path(__file__).parents[1]
MARKED_FOLDERS = ("integration", "e2e", "chaos", "gpu")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test in tests/integration is marked `integration`, and so on."""
    for item in items:
        for folder in MARKED_FOLDERS:
            if ROOT / "tests" / folder in item.path.parents:
                item.add_marker(folder)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """The wait for a turn is not counted against a test's time."""
    with turn(item):
        return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Why a test was tried again: one that passes the second time would leave no trace of its first."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"tried again: {report.nodeid}")
        terminalreporter.line(report.longreprtext)


def unavailable(reason: str) -> NoReturn:
    """Skip the test, or fail it in continuous integration."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    """Fails a test that leaves a child process or a non-daemon thread behind; module and session fixtures may."""
    with leaks.none_left():
        yield


@pytest.fixture(autouse=True)
def own_console() -> None:
    """The consoles keep the streams that they first saw: those of an earlier test are not this one's."""
    from longstride.client.screen import console

    console.out.cache_clear()
    console.err.cache_clear()


@pytest.fixture(scope="session")
def servers() -> Servers:
    """RabbitMQ, PostgreSQL and S3 as the environment names them."""
    try:
        return Servers.from_environment()
    except LookupError as error:
        unavailable(str(error))


@pytest.fixture(scope="session")
def migrated_template(servers: Servers) -> Iterator[str]:
    """The name of a database with all migrations applied: to copy it is ten times as fast as to migrate another."""
    from longstride.storage import migrations

    with under_test.database(servers) as url:
        migrations.upgrade(url)
        yield under_test.name_of(url)


@pytest.fixture
def database_url(servers: Servers, migrated_template: str) -> Iterator[str]:
    """A migrated database of this test's own."""
    with under_test.database(servers, migrated_template) as url:
        yield url


@pytest.fixture(scope="module")
def module_database_url(servers: Servers, migrated_template: str) -> Iterator[str]:
    """A migrated database that the tests of a module share."""
    with under_test.database(servers, migrated_template) as url:
        yield url


@pytest.fixture
def empty_database_url(servers: Servers) -> Iterator[str]:
    """A database of this test's own without any table."""
    with under_test.database(servers) as url:
        yield url


@pytest.fixture(scope="module")
def amqp_url(servers: Servers) -> Iterator[str]:
    """RabbitMQ with a virtual host of this module's own."""
    with under_test.virtual_host(servers) as url:
        yield url


@pytest.fixture(scope="module")
def vhost(amqp_url: str) -> str:
    """The name of this module's virtual host, for the management API."""
    return under_test.name_of(amqp_url)


@pytest.fixture(scope="module")
def bucket(servers: Servers) -> Iterator[str]:
    """A bucket of this module's own; its server and keys are in `servers`."""
    with under_test.bucket(servers) as name:
        yield name


@pytest.fixture(scope="session")
def stack(servers: Servers) -> Stack:
    """The native stack that `servers` are of, to kill and restart them; leave each running again."""
    folder = os.environ.get("LONGSTRIDE_STACK")
    if not folder:
        pytest.skip("these servers cannot be killed from here: LONGSTRIDE_STACK names no native stack")
    return Stack(folder)
