"""The schema's history. Each migration is named for when it runs: ``NNNN_before_…`` goes ahead of the new code, which
old code must survive; ``NNNN_after_…`` waits until no old code runs.

All of an upgrade is one transaction under an advisory lock, so services that start at once wait for the first of them.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import NullPool

from longstride.storage.database import Database, database_url
from longstride.storage.errors import SchemaMismatch
from longstride.storage.failures import translated
from longstride.storage.tables import Base

logging.getLogger("alembic").setLevel(logging.WARNING)  # it tells each start about its context

OLDEST_POSTGRESQL = 14
HOW = "python -m longstride.storage.migrations upgrade"
_LOCK = 0x6D696772
"""The advisory lock that upgrades queue behind."""


def upgrade(url: str, revision: str = "head") -> None:
    """Bring the schema up to ``revision``; nothing happens when it is there.

    Raises:
        SchemaMismatch: PostgreSQL is too old, or the schema was made by a newer build.
        DatabaseUnavailable: no database answers.
    """
    with _exclusive(url) as connection:
        _refuse_newer(connection)
        command.upgrade(_config(connection), revision)


def downgrade(url: str, revision: str = "base") -> None:
    """Take the schema back to ``revision``; the tables made since are dropped with what is in them."""
    with _exclusive(url) as connection:
        command.downgrade(_config(connection), revision)


def check(url: str) -> list[Any]:
    """The differences between the migrated schema and the tables in ``tables.py``; empty when there are none."""
    with _exclusive(url) as connection:
        options = {"compare_type": True, "compare_server_default": True}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata))


def require_current(database: Database) -> None:
    """Refuse to work on a database that this build does not fit. Called once, at the start of a service.

    Raises:
        SchemaMismatch: PostgreSQL is too old; the schema is missing, older or newer.
        DatabaseUnavailable: no database answers.
    """
    with translated, database.engine.connect() as connection:
        _refuse_old_postgresql(connection)
        _refuse_newer(connection)
        current, head = _current(connection), _head()
    if current is None:
        raise SchemaMismatch(f"the database has no Longstride schema; run the migrations first ({HOW})")
    if current != head:
        raise SchemaMismatch(
            f"the database's schema is at revision {current}, this build needs {head}; run the migrations first ({HOW})"
        )


@contextmanager
def _exclusive(url: str) -> Iterator[Connection]:
    engine = create_engine(database_url(url), poolclass=NullPool, use_native_hstore=False)
    with translated, engine.begin() as connection:
        _refuse_old_postgresql(connection)
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        yield connection


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    return config


def _head() -> str:
    head = ScriptDirectory(str(Path(__file__).parent)).get_current_head()
    assert head is not None, "there is a migration"
    return head


def _current(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _refuse_newer(connection: Connection) -> None:
    current = _current(connection)
    known = {script.revision for script in ScriptDirectory(str(Path(__file__).parent)).walk_revisions()}
    if current is not None and current not in known:
        raise SchemaMismatch(
            f"the database's schema is at revision {current}, which this build does not know: it was made by a newer one; upgrade Longstride"
        )


def _refuse_old_postgresql(connection: Connection) -> None:
    number = int(connection.execute(text("SHOW server_version_num")).scalar_one())
    if number < OLDEST_POSTGRESQL * 10_000:
        raise SchemaMismatch(f"PostgreSQL {OLDEST_POSTGRESQL} or newer is needed; this is {number // 10_000}")
