"""Waiting for a store that is still starting: with a message, and for a limited time."""

import time
from collections.abc import Callable

from longstride.storage.artifacts import ArtifactStore
from longstride.storage.database import Database
from longstride.storage.errors import StorageError
from longstride.storage.migrations import require_current

POLL_S = 0.5


def wait_for_database(database: Database, patience_s: float, say: Callable[[str], None]) -> None:
    """Return once PostgreSQL answers and its schema suits this build.

    Raises:
        DatabaseUnavailable: it did not answer for ``patience_s`` seconds.
        SchemaMismatch: at once, as waiting would not help.
    """
    patiently(lambda: require_current(database), "PostgreSQL", patience_s, say)


def wait_for_artifacts(store: ArtifactStore, patience_s: float, say: Callable[[str], None]) -> None:
    """Return once the artifact store answers.

    Raises:
        StorageUnavailable: it did not answer for ``patience_s`` seconds.
        StorageError: at once, where waiting would not help.
    """
    patiently(store.check, "the artifact store", patience_s, say)


def patiently(check: Callable[[], None], name: str, patience_s: float, say: Callable[[str], None]) -> None:
    """Do ``check`` again until it no longer fails for want of ``name``, which may still be starting.

    Raises:
        StorageError: as ``check`` does, when the patience is over, or at once where waiting would not help.
    """
    deadline = time.monotonic() + patience_s
    told = False
    while True:
        try:
            return check()
        except StorageError as error:
            if not error.retryable:
                raise
            if time.monotonic() + POLL_S > deadline:
                raise type(error)(f"gave up on {name} after {patience_s:g} s: {error}") from error
            if not told:
                say(f"waiting up to {patience_s:g} s for {name}: {error}")
                told = True
        time.sleep(POLL_S)
