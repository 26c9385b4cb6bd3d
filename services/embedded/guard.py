"""Watches what the embedded stack cannot live without."""

from longstride.messaging.loop import Loop
from longstride.storage.embedded import EmbeddedPostgres

EVERY_S = 0.5


class PostgresGuard(Loop):
    """Ends the stack when its PostgreSQL has died: the next command starts both again, and nothing is lost."""

    def __init__(self, postgres: EmbeddedPostgres) -> None:
        super().__init__("postgres guard", self._look, EVERY_S)
        self._postgres = postgres

    def _look(self) -> None:
        if self._postgres.died:
            raise RuntimeError("the embedded PostgreSQL has died")
