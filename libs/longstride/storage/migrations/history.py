"""What Alembic does: walking the schema's history, and comparing its end with the tables."""

from pathlib import Path
from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection

from longstride.storage.tables import Base


def upgrade(connection: Connection, revision: str) -> None:
    """Walk up to ``revision``."""
    command.upgrade(config(connection), revision)


def downgrade(connection: Connection, revision: str) -> None:
    """Walk down to it."""
    command.downgrade(config(connection), revision)


def differences(connection: Connection) -> list[Any]:
    """Between the schema and the tables in ``tables.py``."""
    options = {"compare_type": True, "compare_server_default": True}
    return list(compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata))


def config(connection: Connection | None = None) -> Config:
    """Where the scripts are, and what they work on."""
    found = Config()
    found.set_main_option("script_location", str(Path(__file__).parent))
    found.attributes["connection"] = connection
    return found
