"""What can go wrong at the storage boundary: one flat family, raised in few places."""


class StorageError(Exception):
    """The storage refused."""

    retryable = False
    """Whether the same work, done again from its start, may succeed."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class VersionConflict(StorageError):
    """Somebody else wrote this task since it was read."""

    retryable = True


class AlreadyExists(StorageError):
    """A row under this key was written by somebody else in the meantime."""

    retryable = True


class Contention(StorageError):
    """The database gave this transaction up in favour of another: a deadlock, a lock or a serialization failure."""

    retryable = True


class DatabaseUnavailable(StorageError):
    """PostgreSQL cannot be reached, or the connection broke; the transaction did not commit as far as is known."""

    retryable = True


class SchemaMismatch(StorageError):
    """The database's schema, or PostgreSQL itself, does not suit this build."""


class CannotEmbed(StorageError):
    """A private PostgreSQL cannot be run here."""


class StorageUnavailable(StorageError):
    """The artifact store cannot be reached."""

    retryable = True


class StorageRefused(StorageError):
    """The artifact store works, but does not let us in."""


class StorageFull(StorageError):
    """No room is left."""


class ArtifactMissing(StorageError):
    """No object lies under this key."""


class ArtifactCorrupt(StorageError):
    """The object's bytes are not the ones that were stored."""
