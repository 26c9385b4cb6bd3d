"""Fixtures of the messaging tests: both brokers, a database, a backbone. Import them into a module to use them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from longstride.messaging.backbone import Backbone
from longstride.messaging.bus import Bus
from longstride.messaging.consumer import Consumer
from longstride.messaging.memory_broker import MemoryBroker

QUEUES = ("planner", "generate.fast", "generate.deep", "telemetry", "execute", "update", "dead")


@pytest.fixture
def database_url(module_database_url: str) -> str:
    """The module's database, emptied: a third of the time that a new one takes."""
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        tables = SQL(", ").join(Identifier(name) for (name,) in found if name != "alembic_version")
        connection.execute(SQL("TRUNCATE {} RESTART IDENTITY CASCADE").format(tables))
    return module_database_url


@pytest.fixture(params=["memory", "rabbitmq"])
def broker_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker whose queues are declared and empty: each test runs on both."""
    if request.param == "memory":
        with in_memory_broker() as url:
            yield url
    else:
        url = request.getfixturevalue("amqp_url")
        prepare(url)
        yield url


@contextmanager
def in_memory_broker() -> Iterator[str]:
    """The URL of one of its own."""
    name = uuid4().hex
    prepare(f"memory://{name}")
    yield f"memory://{name}"
    MemoryBroker.forget(name)


def prepare(url: str) -> None:
    """Declare the flow's queues, and empty them."""
    bus = Bus(url)
    bus.declare()
    link = bus.link()
    channel = link.channel()
    with link.held():
        for queue in QUEUES:
            channel.queue_purge(f"longstride.{queue}")
    link.close()
    bus.close()


@pytest.fixture
def running() -> Iterator[ExitStack]:
    """What a test starts is stopped with it, the last first."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def backbone(database_url: str, broker_url: str, running: ExitStack) -> Backbone:
    """A process's backbone, started, with short times."""
    return start_backbone(running, database_url, broker_url)


def start_backbone(
    running: ExitStack, database_url: str, broker_url: str, *, succeeds: bool = False, **options: Any
) -> Backbone:
    options = {"lease_ttl_s": 1.5, "heartbeat_s": 0.3, **options}
    backbone = Backbone("test", database_url, broker_url, **options)
    if succeeds:
        backbone.succeed()
    running.callback(backbone.close)
    for part in backbone.essentials():
        part.start()
        running.callback(part.stop, 5.0)
    backbone.bus.connect()
    return backbone


@pytest.fixture
def consume(backbone: Backbone, running: ExitStack) -> Callable[..., Consumer]:
    """Start a consumer of the backbone's bus."""

    def start(queue: str, handle: Any, **options: Any) -> Consumer:
        return start_consumer(running, backbone, queue, handle, **options)

    return start


def start_consumer(running: ExitStack, backbone: Backbone, queue: str, handle: Any, **options: Any) -> Consumer:
    consumer = Consumer(backbone.bus, queue, handle, **options)
    consumer.start()
    running.callback(consumer.stop, 5.0)
    assert consumer.wait_connected(60)
    return consumer


def start_part(running: ExitStack, part: Any) -> Any:
    part.start()
    running.callback(part.stop, 5.0)
    return part


__all__ = ["backbone", "broker_url", "consume", "prepare", "running", "start_backbone", "start_consumer", "start_part"]
