"""The open transaction as the repositories see it: ask now, or let a write ride along to the commit."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, LiteralString, TypeVar

from psycopg import Connection, Pipeline
from psycopg.rows import args_row, scalar_row

from longstride.storage.failures import Translated

T = TypeVar("T")
Params = Sequence[Any] | Mapping[str, Any]


class _Watch(Translated):
    """Remembers that a statement failed: a COMMIT after it would quietly roll back."""

    failure: BaseException | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.failure = self.failure or error
        super().__exit__(kind, error, trace)


class Transaction:
    """Statements on one psycopg connection in pipeline mode and without psycopg's own transactions.

    ``later`` only queues: the statement travels with the next one that is waited for, at the latest with the commit, so
    a planner's ten statements cost three round trips. An error of a queued statement is raised there. After any error the
    transaction can only be left; ``commit`` raises it once more, should somebody have swallowed it.
    """

    def __init__(self, connection: "Connection[Any]", pipeline: Pipeline, durable: bool) -> None:
        """Begins, with the first statement that is sent."""
        self._connection = connection
        self._writer = connection.cursor()
        """For what nobody reads: making a cursor costs more than a statement."""
        self._pipeline = pipeline
        self._watch = _Watch()
        self.later("BEGIN")
        if not durable:
            self.later("SET LOCAL synchronous_commit = off")

    def later(self, sql: LiteralString, params: Params = ()) -> None:
        """Queue a write whose result nobody reads."""
        with self._watch:
            self._writer.execute(sql, params)

    def many(self, sql: LiteralString, rows: Iterable[Params]) -> None:
        """Queue the same write for each of ``rows``."""
        for row in rows:
            self.later(sql, row)

    def count(self, sql: LiteralString, params: Params = ()) -> int:
        """Run a write and wait for the number of rows it touched."""
        with self._watch:
            cursor = self._connection.execute(sql, params)
            self._pipeline.sync()
            return cursor.rowcount

    def rows(self, shape: Callable[..., T], sql: LiteralString, params: Params = ()) -> list[T]:
        """Run a statement and wait for its rows, each made by ``shape(*columns)``."""
        with self._watch, self._connection.cursor(row_factory=args_row(shape)) as cursor:
            return cursor.execute(sql, params).fetchall()

    def row(self, shape: Callable[..., T], sql: LiteralString, params: Params = ()) -> T | None:
        """The first row, or ``None``."""
        with self._watch, self._connection.cursor(row_factory=args_row(shape)) as cursor:
            return cursor.execute(sql, params).fetchone()

    def promise(self, shape: Callable[..., T], sql: LiteralString, params: Params = ()) -> "Callable[[], T | None]":
        """Queue a statement whose first row is asked for later: it is waited for then, or has come with the commit."""
        with self._watch:
            cursor = self._connection.cursor(row_factory=args_row(shape)).execute(sql, params)

        def first() -> T | None:
            with self._watch:
                return cursor.fetchone()

        return first

    def values(self, sql: LiteralString, params: Params = ()) -> list[Any]:
        """The first column of every row."""
        with self._watch, self._connection.cursor(row_factory=scalar_row) as cursor:
            return cursor.execute(sql, params).fetchall()

    def value(self, sql: LiteralString, params: Params = ()) -> Any:
        """The first column of the first row; ``None`` when there is no row."""
        with self._watch, self._connection.cursor(row_factory=scalar_row) as cursor:
            return cursor.execute(sql, params).fetchone()

    def flush(self) -> None:
        """Wait until everything queued is done, so that its errors show here."""
        with self._watch:
            self._pipeline.sync()

    def commit(self) -> None:
        """Queue the commit: it has happened when the pipeline ends without an error. Refuses to commit what failed."""
        if self._watch.failure is not None:
            with self._watch:
                raise self._watch.failure
        self.later("COMMIT")
