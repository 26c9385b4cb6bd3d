"""Waiting until the database or the artifact store is back."""

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from longstride.messaging.backoff import Backoff
from longstride.storage.errors import DatabaseUnavailable, StorageError, StorageFull, StorageUnavailable

logger = logging.getLogger(__name__)

T = TypeVar("T")
OUTAGES = (DatabaseUnavailable, StorageUnavailable, StorageFull)
"""Not the message's doing, so never counted against it."""


def through_outages(
    act: Callable[[], T],
    give_up: threading.Event,
    what: str,
    told: Callable[[StorageError], object] = lambda _error: None,
) -> T | None:
    """``act()``, again and again with back-off while the infrastructure is away; ``None`` once ``give_up`` is set.

    ``told`` hears of each failure.
    """
    backoff = Backoff(first_s=0.1, limit_s=3.0)
    while True:
        try:
            return act()
        except OUTAGES as error:
            logger.warning("%s waits: %s", what, error)
            told(error)
            if give_up.wait(backoff.next()):
                return None
