"""LISTEN: being woken when another process has committed something. A hint; polling is right without it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from longstride.storage.database import Database


class Listener:
    """One connection that waits for notifications. For one thread."""

    def __init__(self, database: Database, channel: str) -> None:
        self._url = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._channel = channel
        self._connection: psycopg.Connection[Any] | None = None

    def wait(self, timeout_s: float) -> bool:
        """Whether somebody notified within ``timeout_s``; any number of notifications wakes once.

        Also ``True`` after each new connection, since notifications may have been missed before it. While PostgreSQL is
        away it returns ``False`` after ``timeout_s``, too; when the connection breaks, at once.
        """
        if self._connection is None:
            if self._connect():
                return True
            time.sleep(timeout_s)
            return False
        try:
            return any(True for _ in self._connection.notifies(timeout=timeout_s, stop_after=1))
        except psycopg.OperationalError:
            self.close()
            return False

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> bool:
        listen = sql.SQL("LISTEN {}").format(sql.Identifier(self._channel))
        try:
            self._connection = psycopg.connect(
                self._url, autocommit=True, connect_timeout=5, application_name="longstride-listener"
            )
            self._connection.execute(listen)
        except psycopg.OperationalError:
            self.close()
        return self._connection is not None


@contextmanager
def listen(database: Database, channel: str) -> Iterator[Listener]:
    """``with listen(database, outbox.CHANNEL) as listener: while …: listener.wait(1.0); drain()``."""
    listener = Listener(database, channel)
    try:
        yield listener
    finally:
        listener.close()
