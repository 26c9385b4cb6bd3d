"""The open transaction as the repositories see it: ask now, or let a write ride along to the commit."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, LiteralString, TypeVar

from psycopg import Connection, Pipeline
from psycopg.rows import args_row, scalar_row

T = TypeVar("T")
Params = Sequence[Any] | Mapping[str, Any]


class Transaction:
    """Statements on one psycopg connection in pipeline mode.

    ``later`` only queues: the statement travels with the next one that is waited for, at the latest with the commit, so
    a planner's ten statements cost three round trips. An error of a queued statement is raised there.
    """

    def __init__(self, connection: "Connection[Any]", pipeline: Pipeline) -> None:
        self._connection = connection
        self._pipeline = pipeline

    def later(self, sql: LiteralString, params: Params = ()) -> None:
        """Queue a write whose result nobody reads."""
        self._connection.execute(sql, params)

    def many(self, sql: LiteralString, rows: Iterable[Params]) -> None:
        """Queue the same write for each of ``rows``."""
        for row in rows:
            self._connection.execute(sql, row)

    def count(self, sql: LiteralString, params: Params = ()) -> int:
        """Run a write and wait for the number of rows it touched."""
        cursor = self._connection.execute(sql, params)
        self._pipeline.sync()
        return cursor.rowcount

    def rows(self, shape: Callable[..., T], sql: LiteralString, params: Params = ()) -> list[T]:
        """Run a statement and wait for its rows, each made by ``shape(*columns)``."""
        with self._connection.cursor(row_factory=args_row(shape)) as cursor:
            return cursor.execute(sql, params).fetchall()

    def row(self, shape: Callable[..., T], sql: LiteralString, params: Params = ()) -> T | None:
        """The first row, or ``None``."""
        with self._connection.cursor(row_factory=args_row(shape)) as cursor:
            return cursor.execute(sql, params).fetchone()

    def values(self, sql: LiteralString, params: Params = ()) -> list[Any]:
        """The first column of every row."""
        with self._connection.cursor(row_factory=scalar_row) as cursor:
            return cursor.execute(sql, params).fetchall()

    def value(self, sql: LiteralString, params: Params = ()) -> Any:
        """The first column of the first row; ``None`` when there is no row."""
        with self._connection.cursor(row_factory=scalar_row) as cursor:
            return cursor.execute(sql, params).fetchone()

    def flush(self) -> None:
        """Wait until everything queued is done, so that its errors show here."""
        self._pipeline.sync()
