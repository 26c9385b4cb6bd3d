"""Spans: what was traced, so that ``longstride trace`` needs nothing else running."""

from collections.abc import Iterable
from dataclasses import fields
from datetime import timedelta

from psycopg.types.json import Jsonb

from longstride.observability.span_record import SpanRecord
from longstride.storage.columns import columns
from longstride.storage.transaction import Transaction

_COLUMNS = columns(SpanRecord)
_JSON = {"attributes", "links", "events"}
_ADD = f"""
    INSERT INTO spans ({_COLUMNS}) VALUES ({", ".join("%s" for _ in fields(SpanRecord))})
    ON CONFLICT DO NOTHING"""
_PRUNE = "DELETE FROM spans WHERE started_ns < (extract(epoch FROM now() - %s::interval) * 1e9)::bigint"


class Spans:
    """The ``spans`` table."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def add_many(self, spans: Iterable[SpanRecord]) -> None:
        """Keep finished spans; one that is there already stays as it is."""
        self._transaction.many(_ADD, map(_values, spans))

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


def _values(span: SpanRecord) -> tuple[object, ...]:
    return tuple(
        Jsonb(getattr(span, field.name)) if field.name in _JSON else getattr(span, field.name) for field in fields(span)
    )
