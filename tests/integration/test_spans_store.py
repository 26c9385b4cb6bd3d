"""Spans into PostgreSQL and back: hostile values, doubled writes, outages, and the tree that ``longstride trace`` shows."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import psycopg
import pytest
from psycopg import sql

from longstride.contracts.envelope import seal
from longstride.contracts.v1.events import Generated
from longstride.observability import names, trace_family
from longstride.observability.middleware import handler_spans
from longstride.observability.settings import TelemetrySettings
from longstride.observability.setup import Telemetry, setup
from longstride.observability.span_record import MemorySpans, SpanRecord
from longstride.observability.spans import root, span
from longstride.observability.trace_tree import build, render
from longstride.storage.database import Database
from tests.support.eventually import eventually
from tests.support.servers import name_of

SETTINGS = TelemetrySettings(otlp_endpoint=None, metrics_port=None, log_format="json")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url, pool_timeout_s=2, connect_timeout_s=2)
    yield database
    database.close()


@pytest.fixture
def telemetry(database: Database) -> Iterator[Telemetry]:
    telemetry = setup("planner", SETTINGS, writer=lambda spans: write(database, spans))
    yield telemetry
    telemetry.shutdown(1)


def write(database: Database, spans: Sequence[SpanRecord]) -> None:
    with database.begin() as uow:
        uow.spans.add_many(spans)


def stored(database: Database, task_id: str = "task_1") -> list[SpanRecord]:
    with database.begin() as uow:
        return uow.spans.for_task(task_id)


HOSTILE = SpanRecord(
    trace_id="0" * 31 + "1",
    span_id="0" * 15 + "1",
    parent_span_id=None,
    name="chat 🙂",
    kind="client",
    service="model-worker",
    task_id="task_1",
    step=2**31 - 1,
    status="error",
    status_detail="'; DROP TABLE spans; --",
    started_ns=2**62,
    ended_ns=2**63 - 1,
    attributes={"a": 'quo"te', "n": 1.5, "b": True, "l": ["x", 1], "none": None},
    links=[{"trace_id": "t", "span_id": "s", "attributes": {}}],
    events=[{"name": "exception", "at_ns": 5, "attributes": {"exception.message": "%s {} \\u0000"}}],
)


def test_a_span_comes_back_as_it_was(database: Database) -> None:
    write(database, [HOSTILE])
    assert stored(database) == [HOSTILE]


def test_the_twin_in_memory_agrees(database: Database) -> None:
    """Of two spans with one identity the first stays; a task's come in the order of their start."""
    memory = MemorySpans()
    later = replace(HOSTILE, span_id="0" * 15 + "2", started_ns=7)
    for batch in ([HOSTILE, later], [replace(HOSTILE, name="again")], []):
        write(database, batch)
        memory(batch)
    assert stored(database) == memory.of_task("task_1") == [later, HOSTILE]


def test_values_that_postgresql_refuses_arrive_made_safe(telemetry: Telemetry, database: Database) -> None:
    with span(
        names.DECIDE, "a\0b", attributes={names.TASK_ID: "task_1", names.REASON: "\0\ud800", names.LOSS: float("nan")}
    ):
        pass
    assert telemetry.flush(10)
    (found,) = stored(database)
    assert found.name == "decide a�b"
    assert found.attributes["longstride.reason"] == "�?"
    assert found.attributes["longstride.loss"] == "nan"


def test_a_task_s_tree_from_the_database(telemetry: Telemetry, database: Database) -> None:
    root("task_1", session_id="session_1", tenant="default")
    envelope = seal(Generated(step=1, text="", policy="builtin"), task_id="task_1")

    def handle(*_: object) -> None:
        with span(names.DECIDE, "generated"):
            pass

    class Delivery:
        queue = "longstride.planner"

    with database.begin() as uow:
        handler_spans(telemetry, "planner")(handle)(envelope, envelope.message(), uow, Delivery())
    root("task_1", session_id="session_1", tenant="default")  # again, as after a rolled-back transaction
    assert telemetry.flush(10)
    tree = build(stored(database))
    assert [(node.name, node.step) for node in tree.walk()] == [
        ("invoke_agent longstride", None),
        ("process planner", 1),
        ("decide generated", 1),
    ]
    assert "[1] process planner  planner  generated" in render(tree)
    with database.begin() as uow:
        assert len(uow.spans.for_trace(f"{trace_family.root('task_1').trace_id:032x}")) == 3


def refuse_connections(server_url: str, database: str, allow: bool) -> None:
    """As an outage of one database: nobody gets in, and who is in is thrown out."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(
            sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}").format(sql.Identifier(database), sql.Literal(allow))
        )
        if not allow:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (database,))


def test_an_outage_of_the_database_costs_no_step_and_no_span(
    telemetry: Telemetry, database: Database, servers: object, database_url: str
) -> None:
    server_url = servers.database_url  # type: ignore[attr-defined]
    with span(names.DECIDE, "before", attributes={names.TASK_ID: "task_1"}):
        pass
    assert telemetry.flush(10)
    refuse_connections(server_url, name_of(database_url), allow=False)
    try:
        slowest = 0.0
        for _ in range(1000):
            started = time.perf_counter()
            with span(names.DECIDE, "during", attributes={names.TASK_ID: "task_1"}):
                pass
            slowest = max(slowest, time.perf_counter() - started)
        assert slowest < 1  # no wait for the database
        assert not telemetry.flush(0.2)
    finally:
        refuse_connections(server_url, name_of(database_url), allow=True)
    eventually(lambda: len(stored(database)) == 1001, 30)
    assert telemetry.dropped == {"span store": 0}


def test_shutdown_does_not_wait_for_a_locked_table(telemetry: Telemetry, database: Database, database_url: str) -> None:
    with psycopg.connect(database_url) as blocker:
        blocker.execute("LOCK TABLE spans IN ACCESS EXCLUSIVE MODE")
        with span(names.DECIDE, attributes={names.TASK_ID: "task_1"}):
            pass
        started = time.perf_counter()
        assert not telemetry.shutdown(0.3)
        assert time.perf_counter() - started < 3
        blocker.rollback()
    eventually(lambda: stored(database))  # what was on its way still arrives
