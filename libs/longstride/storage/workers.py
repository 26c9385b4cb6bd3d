"""Workers: which processes are alive."""

from dataclasses import dataclass
from datetime import datetime

from longstride.storage.columns import columns
from longstride.storage.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Worker:
    """One process start."""

    incarnation: str
    service: str
    started_at: datetime
    seen_at: datetime


_BEAT = """
    INSERT INTO workers (incarnation, service) VALUES (%s, %s)
    ON CONFLICT (incarnation) DO UPDATE SET seen_at = clock_timestamp()"""
_STALE = f"""
    SELECT {columns(Worker)} FROM workers WHERE seen_at < clock_timestamp() - make_interval(secs => %s)
    ORDER BY seen_at FOR UPDATE SKIP LOCKED"""

PRESENCE_KEY = "hashtextextended(%s, 7001)"
"""The advisory lock that a live process holds; see ``presence``."""
_VANISHED = f"""
    SELECT {columns(Worker)} FROM workers
    WHERE seen_at < clock_timestamp() - make_interval(secs => %s)
        AND pg_try_advisory_xact_lock_shared({PRESENCE_KEY % "incarnation"})
    ORDER BY seen_at FOR UPDATE SKIP LOCKED"""


class Workers:
    """The ``workers`` table."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def beat(self, incarnation: str, service: str) -> None:
        """This process is alive."""
        self._transaction.later(_BEAT, (incarnation, service))

    def retire(self, incarnation: str) -> None:
        """This process is gone."""
        self._transaction.later("DELETE FROM workers WHERE incarnation = %s", (incarnation,))

    def stale(self, silent_for_s: float) -> list[Worker]:
        """The processes that have not been seen for so long, locked, passing over those another reaper holds."""
        return self._transaction.rows(Worker, _STALE, (silent_for_s,))

    def vanished(self, silent_for_s: float) -> list[Worker]:
        """The processes that have hung up and have not been seen for so long: dead, not merely slow. Locked, as above.

        After an outage of the database everybody has hung up: ask only when one's own ``Presence`` has been steady.
        """
        return self._transaction.rows(Worker, _VANISHED, (silent_for_s,))

    def all(self) -> list[Worker]:
        """Every process not retired, by service."""
        return self._transaction.rows(Worker, f"SELECT {columns(Worker)} FROM workers ORDER BY service, started_at")
