"""Hearing of a NOTIFY: a hint that something was committed, on a connection of its own."""

import psycopg
from psycopg.sql import SQL, Identifier

from longstride.storage.database import database_url
from longstride.storage.failures import translated
from longstride.storage.outbox import CHANNEL


class OutboxListener:
    """Waits for additions to the outbox. For one thread. What happens while it is not connected is missed."""

    def __init__(self, url: str) -> None:
        """Connect.

        Raises:
            ValueError: ``url`` is not a PostgreSQL URL.
            DatabaseUnavailable: the database cannot be reached.
        """
        plain = database_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        with translated:
            self._connection = psycopg.connect(
                plain, autocommit=True, connect_timeout=5, application_name="longstride outbox listener"
            )
            self._connection.execute(SQL("LISTEN {}").format(Identifier(CHANNEL)))

    def wait(self, timeout_s: float) -> bool:
        """Whether something was added within ``timeout_s`` seconds.

        Raises:
            DatabaseUnavailable: the connection broke; make another listener.
        """
        with translated:
            return any(True for _ in self._connection.notifies(timeout=timeout_s, stop_after=1))

    def close(self) -> None:
        """Hang up."""
        self._connection.close()
