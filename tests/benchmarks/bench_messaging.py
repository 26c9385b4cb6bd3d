"""One message's way: from the call that publishes it to its handler, to the confirm, and through the outbox."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import quantiles
from uuid import uuid4

from longstride.contracts.envelope import seal
from longstride.contracts.v1.commands import RecordFeedback
from longstride.messaging.backbone import Backbone
from longstride.messaging.consumer import Consumer
from longstride.messaging.delivery import Delivery
from longstride.messaging.memory_broker import MemoryBroker
from longstride.messaging.outgoing import to_exchange
from longstride.storage import migrations
from tests.benchmarks.table import Row, Table
from tests.support import servers as under_test
from tests.support.servers import Servers

MESSAGES = 1000
BATCH = 1000
KEY = "record_feedback"
BODY = b"x" * 800


class Stopwatch:
    """Times single messages from their sending to their handling."""

    def __init__(self) -> None:
        self._handled = threading.Event()
        self._at = 0.0

    def handle(self, _delivery: Delivery) -> None:
        """The consumer's handler."""
        self._at = time.perf_counter()
        self._handled.set()

    def time(self, send: Callable[[], object]) -> tuple[float, float]:
        """Milliseconds that ``send`` took, and from its start until the message was handled."""
        self._handled.clear()
        begun = time.perf_counter()
        send()
        sent = time.perf_counter()
        assert self._handled.wait(30)
        return (sent - begun) * 1000, (self._at - begun) * 1000


def run(messages: int = MESSAGES) -> Table:
    """Measure both brokers, and say so in a table."""
    servers = Servers.from_environment()
    rows: list[Row] = []
    with ExitStack() as stack:
        database_url = stack.enter_context(under_test.database(servers))
        migrations.upgrade(database_url)
        for name, url in (
            ("in memory", f"memory://{uuid4().hex}"),
            ("RabbitMQ", stack.enter_context(under_test.virtual_host(servers))),
        ):
            rows += [(name, *row) for row in measure(database_url, url, messages)]
    return Table("Messages of 800 bytes", ("broker", "what", "p50 ms", "p99 ms"), rows)


def measure(database_url: str, broker_url: str, messages: int) -> list[Row]:
    """The rows of one broker."""
    backbone, watch = Backbone("bench", database_url, broker_url), Stopwatch()
    backbone.bus.declare()
    consumer = Consumer(backbone.bus, "longstride.telemetry", watch.handle)
    backbone.bus.connect()
    backbone.relay.start()
    consumer.start()
    assert consumer.wait_connected(30)
    try:
        direct = [
            watch.time(lambda: backbone.bus.send([to_exchange(BODY, KEY, uuid4().hex)], [ignore]))
            for _ in range(messages)
        ]
        durable = [watch.time(lambda: post(backbone)) for _ in range(messages // 2)]
        batch = [to_exchange(BODY, KEY, uuid4().hex) for _ in range(BATCH)]
        begun = time.perf_counter()
        assert backbone.bus.publish_all(batch) == [None] * BATCH
        each = (time.perf_counter() - begun) / BATCH * 1000
    finally:
        consumer.stop(30)
        backbone.relay.stop(10)
        backbone.close()
        MemoryBroker.forget(broker_url.removeprefix("memory://"))
    return [
        ("the call that publishes", *spread([call for call, _ in direct])),
        ("publish to handler", *spread([handled for _, handled in direct])),
        ("commit with an outbox row", *spread([call for call, _ in durable])),
        ("commit to handler", *spread([handled for _, handled in durable])),
        (f"each of {BATCH} published and confirmed together", f"{each:.3f}", ""),
    ]


def post(backbone: Backbone) -> None:
    """One transaction with one message."""
    with backbone.database.begin() as uow:
        backbone.outbox.post(uow, seal(RecordFeedback(score=1.0), task_id="task_1"))


def ignore(_error: object) -> None:
    """Nobody waits for the confirm."""


def spread(figures: list[float]) -> tuple[str, str]:
    """p50 and p99."""
    cuts = quantiles(figures, n=100)
    return f"{cuts[49]:.3f}", f"{cuts[98]:.3f}"
