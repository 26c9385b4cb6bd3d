"""The storage's errors as the client's."""

from collections.abc import Iterator
from contextlib import contextmanager

from longstride.client.errors import ClientError, NotFound, Unreachable
from longstride.storage.errors import (
    ArtifactMissing,
    DatabaseUnavailable,
    StorageError,
    StorageRefused,
    StorageUnavailable,
)


@contextmanager
def translated() -> Iterator[None]:
    """Raise storage errors as client errors.

    Raises:
        Unreachable: PostgreSQL or the artifact store does not answer, or does not let us in.
        NotFound: the object is gone.
        ClientError: anything else that the storage refuses.
    """
    try:
        yield
    except (DatabaseUnavailable, StorageUnavailable, StorageRefused) as error:
        raise Unreachable(str(error)) from error
    except ArtifactMissing as error:
        raise NotFound(str(error)) from error
    except StorageError as error:
        raise ClientError(str(error)) from error
