"""Alembic's way in: it gets its connection from ``longstride.storage.migrations``, never from a file."""

from alembic import context

from longstride.storage.tables import Base

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("run migrations with: python -m longstride.storage.migrations DATABASE_URL upgrade")
context.configure(connection=connection, target_metadata=Base.metadata, compare_type=True, compare_server_default=True)
with context.begin_transaction():
    context.run_migrations()
