"""The schema's history. Each migration is named for when it runs: ``NNNN_before_…`` goes ahead of the new code, which
old code must survive; ``NNNN_after_…`` waits until no old code runs.

All of an upgrade is one transaction under an advisory lock, so services that start at once wait for the first of them.
Where there is nothing to do, as at nearly every start of a service, Alembic is not even loaded.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import NullPool

from longstride.storage.database import Database, database_url
from longstride.storage.errors import SchemaMismatch
from longstride.storage.failures import MIGRATE, translated

logging.getLogger("alembic").setLevel(logging.WARNING)  # it tells each migration about its plug-ins and its context

OLDEST_POSTGRESQL = 14
_LOCK = 0x6D696772
"""The advisory lock that upgrades queue behind."""


def upgrade(url: str, revision: str = "head") -> None:
    """Bring the schema up to ``revision``; nothing happens when it is there.

    Raises:
        SchemaMismatch: PostgreSQL is too old, or the schema was made by a newer build.
        DatabaseUnavailable: no database answers.
    """
    with _exclusive(url) as connection:
        current = _known(connection)
        if current != (head() if revision == "head" else revision):
            from longstride.storage.migrations import history

            history.upgrade(connection, revision)


def downgrade(url: str, revision: str = "base") -> None:
    """Take the schema back to ``revision``; the tables made since are dropped with what is in them."""
    from longstride.storage.migrations import history

    with _exclusive(url) as connection:
        history.downgrade(connection, revision)


def check(url: str) -> list[Any]:
    """The differences between the migrated schema and the tables in ``tables.py``; empty when there are none."""
    from longstride.storage.migrations import history

    with _exclusive(url) as connection:
        return history.differences(connection)


def require_current(database: Database) -> None:
    """Refuse to work on a database that this build does not fit. Called once, at the start of a service.

    Raises:
        SchemaMismatch: PostgreSQL is too old; the schema is missing, older or newer.
        DatabaseUnavailable: no database answers.
    """
    with translated, database.engine.connect() as connection:
        _refuse_old_postgresql(connection)
        current = _known(connection)
    if current is None:
        raise SchemaMismatch(f"the database has no Longstride schema; run the migrations first ({MIGRATE})")
    if current != head():
        raise SchemaMismatch(
            f"the database's schema is at revision {current}, this build needs {head()}; run the migrations first ({MIGRATE})"
        )


def revisions() -> list[str]:
    """Those that this build knows, the oldest first: a file in ``versions`` is named for its revision."""
    return sorted(path.name[:4] for path in (Path(__file__).parent / "versions").glob("[0-9]*.py"))


def head() -> str:
    """The newest."""
    return revisions()[-1]


@contextmanager
def _exclusive(url: str) -> Iterator[Connection]:
    engine = create_engine(database_url(url), poolclass=NullPool, use_native_hstore=False)
    with translated, engine.begin() as connection:
        _refuse_old_postgresql(connection)
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        yield connection


def _known(connection: Connection) -> str | None:
    """The schema's revision; ``None``: there is no schema yet. Refuses one that this build does not know."""
    current = _current(connection)
    if current is not None and current not in revisions():
        raise SchemaMismatch(
            f"the database's schema is at revision {current}, which this build does not know: it was made by a newer one; upgrade Longstride"
        )
    return current


def _current(connection: Connection) -> str | None:
    if connection.execute(text("SELECT to_regclass('alembic_version')")).scalar_one() is None:
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


def _refuse_old_postgresql(connection: Connection) -> None:
    number = int(connection.execute(text("SHOW server_version_num")).scalar_one())
    if number < OLDEST_POSTGRESQL * 10_000:
        raise SchemaMismatch(f"PostgreSQL {OLDEST_POSTGRESQL} or newer is needed; this is {number // 10_000}")
