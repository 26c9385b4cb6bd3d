"""The way to PostgreSQL: a pool of connections that survives the server's restarts, and transactions on it."""

import select
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, InvalidatePoolError
from sqlalchemy.pool import QueuePool

from longstride.storage.adaptation import adapt
from longstride.storage.failures import translated
from longstride.storage.id_block import IdBlock
from longstride.storage.transaction import Transaction
from longstride.storage.unit_of_work import UnitOfWork


class Database:
    """A pool of connections to one PostgreSQL database. Safe to share between threads, not between processes."""

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 5,
        max_overflow: int = 5,
        pool_timeout_s: float = 30.0,
        connect_timeout_s: int = 5,
        statement_timeout_s: float = 30.0,
        idle_in_transaction_timeout_s: float = 60.0,
        notify_outbox: bool = True,
        application_name: str = "longstride",
    ) -> None:
        """Nothing is connected yet.

        Args:
            url: ``postgresql://user:password@host:port/database``; ``?host=/folder`` for a Unix socket.
            pool_size: connections kept.
            max_overflow: connections opened beyond ``pool_size`` under load.
            pool_timeout_s: seconds to wait for a free connection.
            connect_timeout_s: seconds for one connection attempt.
            statement_timeout_s: seconds one statement may take.
            idle_in_transaction_timeout_s: seconds a transaction may do nothing before the server ends it, so that a hung
                process does not hold its locks.
            notify_outbox: wake listeners of ``longstride_outbox`` at each commit that added to the outbox. Not needed by
                a process that hands its messages to a relay of its own.
            application_name: shown in ``pg_stat_activity``.

        Raises:
            ValueError: ``url`` is not a PostgreSQL URL.
        """
        self.url = database_url(url)
        self._notify_outbox = notify_outbox
        self._engine = create_engine(
            self.url,
            poolclass=QueuePool,
            pool_size=pool_size,
            max_overflow=max_overflow,
            pool_timeout=pool_timeout_s,
            use_native_hstore=False,
            connect_args={
                "connect_timeout": connect_timeout_s,
                "application_name": application_name,
                "tcp_user_timeout": 10_000,
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 3,
                "options": f"-c timezone=UTC -c statement_timeout={int(statement_timeout_s * 1000)}"
                f" -c idle_in_transaction_session_timeout={int(idle_in_transaction_timeout_s * 1000)}",
            },
        )
        event.listen(self._engine, "connect", _prepare)
        event.listen(self._engine, "checkout", _refuse_hung_up)

    @property
    def engine(self) -> Engine:
        """SQLAlchemy's engine, for migrations and ad-hoc reading inside this package."""
        return self._engine

    @contextmanager
    def begin(self, *, durable: bool = True) -> Iterator[UnitOfWork]:
        """One transaction: committed on a clean exit, rolled back on an exception.

        ``durable=False`` commits without waiting for the disk (``synchronous_commit = off``): a crash of the *server*
        within the next fraction of a second may forget the commit, but never tears it or lets a later one survive it.
        That is safe for lease claims and heartbeats, because what a lease guards is checked again in a durable commit:
        ``answer`` compares owner *and* generation, and the row it compares with is the one that survived. A forgotten
        claim leaves the attempt dispatched (or claimed by the next one with another owner), so the forgotten owner is
        fenced; a forgotten heartbeat lets the lease expire early. Work may be done twice, never committed twice.

        Raises:
            StorageError: the retryable ones may be tried again from the start, see ``retrying``.
        """
        with translated, self._connection() as (connection, outbox_ids):
            try:
                with connection.pipeline() as pipeline:
                    transaction = Transaction(connection, pipeline, durable)
                    uow = UnitOfWork(transaction, outbox_ids, self._notify_outbox)
                    try:
                        yield uow
                        uow.committing()
                        transaction.commit()
                    except BaseException:
                        _roll_back(connection)
                        raise
            except BaseException:
                _roll_back(connection)  # where it was the end of the pipeline that brought the error
                raise
        uow.committed()

    def close(self) -> None:
        """Close the pooled connections."""
        self._engine.dispose()

    @contextmanager
    def _connection(self) -> "Iterator[tuple[psycopg.Connection[Any], IdBlock]]":
        pooled = self._engine.raw_connection()
        connection = pooled.driver_connection
        assert isinstance(connection, psycopg.Connection)
        try:
            connection.autocommit = True  # psycopg's own BEGIN costs a round trip; ours travels with what follows
            yield connection, pooled.info.setdefault("outbox ids", IdBlock())
        finally:
            if connection.closed:
                pooled.invalidate()
            else:
                connection.autocommit = False  # as SQLAlchemy and the migrations know it
            pooled.close()


def _roll_back(connection: "psycopg.Connection[Any]") -> None:
    """Roll back, past the errors of statements still in the pipeline: the first was raised, nobody wants the others."""
    for _ in range(3):
        if connection.closed:
            return
        try:
            connection.rollback()
            return
        except psycopg.Error:
            continue
    connection.close()


def database_url(url: str) -> URL:
    """``url`` for psycopg 3.

    Raises:
        ValueError: it is not a PostgreSQL URL.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise ValueError(
            "the database URL is not one; expected postgresql://user:password@host:port/database"
        ) from error
    if parsed.get_backend_name() != "postgresql":
        raise ValueError(f"the database must be PostgreSQL (postgresql://…), not {parsed.get_backend_name()!r}")
    return parsed.set(drivername="postgresql+psycopg")


def _prepare(connection: Any, _record: Any) -> None:
    adapt(connection)


def _refuse_hung_up(connection: Any, _record: Any, _proxy: Any) -> None:
    """An idle connection has nothing to say; if its socket is readable, the server has hung up. Costs no round trip."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if connection.closed or poll.poll(0):
        raise InvalidatePoolError("the server closed this connection")
