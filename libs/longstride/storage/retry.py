"""Doing a transaction again: the one place that decides how often and how soon."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from longstride.storage.database import Database
from longstride.storage.errors import StorageError
from longstride.storage.unit_of_work import UnitOfWork

T = TypeVar("T")
ATTEMPTS = 6
FIRST_DELAY_S = 0.025
"""Doubled a try, with full jitter: six tries span up to 0.8 s. Longer outages are their callers' loops to wait for."""


def retrying(
    database: Database, work: Callable[[UnitOfWork], T], *, attempts: int = ATTEMPTS, durable: bool = True
) -> T:
    """Run ``work`` in a transaction; on a conflict, a deadlock or a lost connection, again from its start.

    A connection that breaks during the commit leaves it unknown whether it took place. ``work`` must then be safe to
    repeat: the inbox, the fence of ``attempts.answer`` and unique keys make it so.

    Raises:
        StorageError: the last one, when ``attempts`` are used up or it cannot be helped by trying again.
    """
    for attempt in range(1, attempts + 1):
        try:
            with database.begin(durable=durable) as uow:
                return work(uow)
        except StorageError as error:
            if not error.retryable or attempt == attempts:
                raise
            time.sleep(random.uniform(0, FIRST_DELAY_S * 2**attempt))
    raise AssertionError("at least one attempt")
