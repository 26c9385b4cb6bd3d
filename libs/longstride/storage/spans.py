"""Spans: what was traced, so that ``longstride trace`` needs nothing else running."""

from collections.abc import Iterable
from dataclasses import fields
from datetime import timedelta

from psycopg.types.json import Json

from longstride.observability.span_record import SpanRecord
from longstride.storage.columns import columns
from longstride.storage.transaction import Transaction

_COLUMNS = columns(SpanRecord)
_NAMES = [field.name for field in fields(SpanRecord)]
_TYPES = {
    "step": "int",
    "started_ns": "bigint",
    "ended_ns": "bigint",
    "attributes": "jsonb",
    "links": "jsonb",
    "events": "jsonb",
}
_SHAPE = ", ".join(f"{field.name} {_TYPES.get(field.name, 'text')}" for field in fields(SpanRecord))
_ADD = f"""
    INSERT INTO spans ({_COLUMNS}) SELECT {_COLUMNS} FROM json_to_recordset(%s) AS s ({_SHAPE})
    ON CONFLICT DO NOTHING"""
_PRUNE = "DELETE FROM spans WHERE started_ns < (extract(epoch FROM now() - %s::interval) * 1e9)::bigint"


class Spans:
    """The ``spans`` table."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def add_many(self, spans: Iterable[SpanRecord]) -> None:
        """Keep finished spans; one that is there already stays as it is."""
        rows = [{name: getattr(span, name) for name in _NAMES} for span in spans]
        self._transaction.later(_ADD, (Json(rows),))  # one statement: there are a dozen spans to a step

    def for_task(self, task_id: str) -> list[SpanRecord]:
        """A task's spans, in the order of their start."""
        return self._where("task_id = %s", task_id)

    def for_trace(self, trace_id: str) -> list[SpanRecord]:
        """A trace's spans, in the order of their start."""
        return self._where("trace_id = %s", trace_id)

    def prune(self, older_than: timedelta) -> int:
        """Forget spans that started longer ago; returns how many."""
        return self._transaction.count(_PRUNE, (older_than,))

    def _where(self, condition: str, value: str) -> list[SpanRecord]:
        sql = f"SELECT {_COLUMNS} FROM spans WHERE {condition} ORDER BY started_ns, span_id"
        return self._transaction.rows(SpanRecord, sql, (value,))
