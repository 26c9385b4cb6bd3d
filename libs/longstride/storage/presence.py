"""Presence: a session that exists as long as its process does. The server notices its end at once, whatever ended it."""

import select
import time

import psycopg

from longstride.storage.database import Database
from longstride.storage.failures import translated
from longstride.storage.workers import PRESENCE_KEY


class Presence:
    """Holds an advisory lock in the name of a process. For one thread.

    A heartbeat can be late because the process is busy; the lock cannot: a process that cannot run still has its
    connection. And when the process is killed, the kernel closes the connection within milliseconds.
    """

    def __init__(self, database: Database, incarnation: str) -> None:
        """Nothing is connected yet; see ``keep``."""
        self._url = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._incarnation = incarnation
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None
        self._since = float("inf")

    def keep(self) -> None:
        """Be present: connect where that is not so, or not any more.

        Raises:
            DatabaseUnavailable: the database cannot be reached.
        """
        if self._connection is None or _hung_up(self._connection):
            self.end()
            self._connect()

    def steady_s(self) -> float:
        """For how long the session has existed without a break, as of the last ``keep``; below 0: it does not."""
        return time.monotonic() - self._since

    def end(self) -> None:
        """Hang up."""
        connection, self._connection = self._connection, None
        self._since = float("inf")
        if connection is not None:
            connection.close()

    def _connect(self) -> None:
        with translated:
            connection = psycopg.connect(
                self._url,
                autocommit=True,
                connect_timeout=2,
                application_name="longstride presence",
                keepalives_idle=10,
                keepalives_interval=5,
                keepalives_count=3,
                options="-c statement_timeout=2000",
            )
            try:
                connection.execute(f"SELECT pg_advisory_lock({PRESENCE_KEY})", (self._incarnation,))
            except psycopg.Error:
                connection.close()
                raise
        self._connection = connection
        self._since = time.monotonic()


def _hung_up(connection: "psycopg.Connection[tuple[object, ...]]") -> bool:
    """An idle session has nothing to say; if its socket is readable, the server has ended it."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
