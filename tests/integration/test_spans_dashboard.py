"""Every SQL statement of the dashboards runs on a migrated PostgreSQL and says what the rows say."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.support import grafana
from tests.support.grafana import DASHBOARDS, Statement

NOON = "2026-01-01T12:00:00Z"
ROWS = f"""
    INSERT INTO tasks (id, session_id, tenant, status, version, instruction, track, priority, outcome, reason, reward, steps,
                       input_tokens, output_tokens, created_at, started_at, ended_at, traceparent)
    VALUES ('task_1', 's', 'acme', 'succeeded', 9, 'count', 'fast', 5, 'succeeded', 'checks_passed', 1.0, 2, 512, 40,
            '{NOON}', '{NOON}', '2026-01-01T12:00:30Z', '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'),
           ('task_2', 's', 'acme', 'failed', 9, 'count', 'fast', 5, 'failed', 'stuck', 0.0, 2, 100, 10, '{NOON}', '{NOON}',
            '2026-01-01T12:00:40Z', NULL),
           ('task_3', 's', 'acme', 'cancelled', 9, 'count', 'fast', 5, 'cancelled', 'cancelled', NULL, 0, 0, 0, '{NOON}', NULL,
            '2026-01-01T12:00:50Z', NULL),
           ('task_4', 's', 'acme', 'running', 3, 'count', 'fast', 5, NULL, NULL, NULL, 1, 0, 0, '{NOON}', '{NOON}', NULL, NULL),
           ('task_5', 's', 'other', 'failed', 9, 'count', 'fast', 5, 'failed', 'stuck', 0.0, 2, 0, 0, '{NOON}', '{NOON}',
            '2026-01-01T12:00:40Z', NULL);
    INSERT INTO steps (task_id, step, tool, arguments, status, input_tokens, output_tokens, model_ms, tool_ms, revises, ended_at)
    VALUES ('task_1', 1, 'shell', '{{"command": "false"}}', 'failed', 256, 20, 100, 10, NULL, '{NOON}'),
           ('task_1', 2, 'shell', '{{"command": "wc"}}', 'ok', 256, 20, 300, 30, 1, '{NOON}');
    INSERT INTO attempts (task_id, step, phase, attempt, status, message_id, lease_expires_at)
    VALUES ('task_1', 1, 'execute', 1, 'settled', 'm1', NULL), ('task_4', 1, 'execute', 2, 'leased', 'm2', '{NOON}');
    INSERT INTO outbox (id, message_id, carrier, routing_key, wire) OVERRIDING SYSTEM VALUE VALUES (1, 'm3', 'kombu', 'generate.fast', '{{}}');
    INSERT INTO dead_letters (queue, reason, body, headers, dead_at, replayed_at)
    VALUES ('planner', 'not JSON', 'x', '{{}}', '{NOON}', NULL), ('planner', 'not JSON', 'x', '{{}}', '{NOON}', '{NOON}');
    INSERT INTO trajectories (task_id, session_id, tenant, policy, policy_version, outcome, reason, ref, created_at)
    VALUES ('task_1', 's', 'acme', 'builtin', 3, 'succeeded', 'checks_passed', '{{}}', '{NOON}'),
           ('task_2', 's', 'acme', 'builtin', 3, 'failed', 'stuck', '{{}}', '{NOON}');
    INSERT INTO rewards (task_id, version, value, components, source)
    VALUES ('task_1', 1, 1.0, '[]', 'checks'), ('task_1', 2, 0.5, '[]', 'feedback'), ('task_2', 1, 0.0, '[]', 'checks');
    INSERT INTO workers (incarnation, service) VALUES ('host-1_0199', 'planner');
"""
STATEMENTS = [statement for path in DASHBOARDS for statement in grafana.statements(grafana.load(path))]


@pytest.fixture(scope="module")
def connection(module_database_url: str) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    with psycopg.connect(module_database_url, row_factory=dict_row, autocommit=True) as connection:
        connection.execute("SET timezone TO 'UTC'")
        connection.execute(ROWS)
        yield connection


def run(connection: psycopg.Connection[dict[str, Any]], statement: Statement) -> list[dict[str, Any]]:
    return connection.execute(grafana.expanded(statement.sql, {"tenant": "acme", "task": "task_1"})).fetchall()  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement.title)
def test_each_statement_runs_and_finds_rows(
    connection: psycopg.Connection[dict[str, Any]], statement: Statement
) -> None:
    assert run(connection, statement)


MINUTE = 1_767_268_800  # 2026-01-01T12:00:00Z, by `date -u -d @1767268800`


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        (
            "Tasks by status",
            [
                {"status": "cancelled", "tasks": 1},
                {"status": "failed", "tasks": 1},
                {"status": "running", "tasks": 1},
                {"status": "succeeded", "tasks": 1},
            ],
        ),
        ("Succeeded", [{"succeeded": 0.5}]),
        ("Mean reward", [{"reward": 0.5}]),
        ("Dead letters", [{"waiting": 1}]),
        (
            "Tasks ended",
            [
                {"time": MINUTE, "metric": "cancelled", "value": 1},
                {"time": MINUTE, "metric": "failed", "value": 1},
                {"time": MINUTE, "metric": "succeeded", "value": 1},
            ],
        ),
        ("Time of a model call", [{"time": MINUTE, "p50": 200.0, "p95": 290.0}]),
        ("Tokens", [{"time": MINUTE, "input": 512, "output": 40}]),
        ("Tools", [{"tool": "shell", "calls": 2, "ok": 0.5, "p50_ms": 20.0, "p95_ms": 29.0, "corrections": 1}]),
        (
            "Policies",
            [{"policy": "builtin", "policy_version": 3, "trajectories": 2, "reward": 0.25, "rewarded": 2}],
        ),
        ("variable trace", [{"split_part": "4bf92f3577b34da6a3ce929d0e0e4736"}]),
        ("variable tenant", [{"tenant": "acme"}, {"tenant": "other"}]),
    ],
)
def test_a_panel_says_what_the_rows_say(
    connection: psycopg.Connection[dict[str, Any]], title: str, expected: list[dict[str, Any]]
) -> None:
    (statement,) = [statement for statement in STATEMENTS if statement.title == title]
    found = run(connection, statement)
    assert [
        {key: pytest.approx(value) if isinstance(value, float) else value for key, value in row.items()}
        for row in expected
    ] == [{key: float(value) if hasattr(value, "as_tuple") else value for key, value in row.items()} for row in found]


def test_an_expired_lease_is_counted(connection: psycopg.Connection[dict[str, Any]]) -> None:
    (statement,) = [statement for statement in STATEMENTS if statement.title == "Open attempts"]
    (row,) = run(connection, statement)
    assert (row["phase"], row["status"], row["attempts"], row["expired"], row["highest_attempt"]) == (
        "execute",
        "leased",
        1,
        1,
        2,
    )
