"""PostgreSQL's failures as storage errors: the one place that reads SQLSTATEs."""

from types import TracebackType

import psycopg
from psycopg import errors as pg
from sqlalchemy import exc

from longstride.storage.errors import (
    AlreadyExists,
    Contention,
    DatabaseUnavailable,
    SchemaMismatch,
    StorageError,
    StorageFull,
    VersionConflict,
)

MIGRATE = "python -m longstride.storage.migrations upgrade"
_CONTENTION = (pg.SerializationFailure, pg.DeadlockDetected, pg.LockNotAvailable, pg.QueryCanceled)
_UNAVAILABLE = (psycopg.OperationalError, psycopg.InterfaceError, exc.OperationalError, exc.InvalidRequestError)


def translate(error: Exception) -> StorageError | None:
    """The storage error that ``error`` means; ``None``: a bug of ours, to be seen as it is."""
    if isinstance(error, exc.DBAPIError) and isinstance(error.orig, psycopg.Error):
        return translate(error.orig)
    text = " ".join(str(error).split())
    match error:
        case pg.UniqueViolation() if error.diag.constraint_name == "task_events_pkey":
            return VersionConflict(
                f"the task was written by somebody else since it was read: {error.diag.message_detail}"
            )
        case pg.UniqueViolation():
            return AlreadyExists(f"{error.diag.constraint_name}: {error.diag.message_detail}")
        case pg.DiskFull():
            return StorageFull(f"PostgreSQL's disk is full: {text}; free some room, the work is tried again")
        case exc.TimeoutError():
            return DatabaseUnavailable(
                f"no database connection became free: {text}; raise pool_size or look for long transactions"
            )
        case pg.UndefinedTable():
            return SchemaMismatch(
                f"{text}: no service of this version has started on this database yet, and each makes the tables when it does;"
                f" or run the migrations ({MIGRATE})"
            )
        case pg.UndefinedColumn():
            return SchemaMismatch(
                f"{text}: the database was made by another version of Longstride; run the migrations ({MIGRATE})"
            )
        case pg.InvalidCatalogName():
            return SchemaMismatch(f"{text}: name another database, or make this one and run the migrations ({MIGRATE})")
        case _ if isinstance(error, _CONTENTION):
            return Contention(text)
        case _ if isinstance(error, _UNAVAILABLE):
            return DatabaseUnavailable(f"PostgreSQL cannot be reached: {text}")
    return None


class Translated:
    """``with translated:`` raises PostgreSQL's failures as storage errors. A class, since it is entered at every statement."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, psycopg.Error | exc.SQLAlchemyError) and (meaning := translate(error)) is not None:
            raise meaning from error


translated = Translated()
