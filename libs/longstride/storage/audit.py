"""The audit log: who did what, append-only, hash-chained a tenant, so that a change or a gap shows."""

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from psycopg.types.json import Jsonb

from longstride.storage.columns import columns
from longstride.storage.transaction import Transaction

GENESIS = "0" * 64


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """See ``tables.AuditRow``."""

    tenant: str
    seq: int
    """1, 2, 3 … a tenant."""
    entry: dict[str, Any]
    previous: str
    sha256: str
    occurred_at: datetime


@dataclass(frozen=True, slots=True)
class BrokenLink:
    """Where the chain does not hold."""

    seq: int
    problem: str


_COLUMNS = columns(AuditEntry)
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('longstride.audit.' || %s, 0))"
_LAST = f"SELECT {_COLUMNS} FROM audit WHERE tenant = %s ORDER BY seq DESC LIMIT 1"
_AS_STORED = "SELECT %s::jsonb, clock_timestamp()"
_APPEND = f"INSERT INTO audit ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s)"
_READ = f"SELECT {_COLUMNS} FROM audit WHERE tenant = %s AND seq > %s ORDER BY seq LIMIT %s"
_PAGE = 1000


class Audit:
    """The ``audit`` table."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def append(self, tenant: str, entry: dict[str, Any]) -> AuditEntry:
        """Add an entry; appends of one tenant wait for each other until the transaction ends."""
        self._transaction.later(_LOCK, (tenant,))
        last = self._transaction.row(AuditEntry, _LAST, (tenant,))
        stored = self._transaction.row(_pair, _AS_STORED, (Jsonb(entry),))
        assert stored is not None
        seq, previous = (last.seq + 1, last.sha256) if last else (1, GENESIS)
        link = _link(tenant, seq, previous, *stored)
        row = (link.tenant, link.seq, Jsonb(link.entry), link.previous, link.sha256, link.occurred_at)
        self._transaction.later(_APPEND, row)
        return link

    def read(self, tenant: str, after: int = 0, limit: int = 100) -> list[AuditEntry]:
        """Entries with a seq above ``after``, in order."""
        return self._transaction.rows(AuditEntry, _READ, (tenant, after, limit))

    def verify(self, tenant: str) -> BrokenLink | None:
        """The first entry that is missing or not what was written; ``None``: the chain holds.

        Cut-off entries at the end leave a chain that holds: compare the last ``sha256`` with one noted elsewhere.
        """
        previous, seq = GENESIS, 0
        while page := self.read(tenant, seq, _PAGE):
            for entry in page:
                problem = _problem(entry, seq + 1, previous)
                if problem:
                    return BrokenLink(seq + 1, problem)
                previous, seq = entry.sha256, entry.seq
        return None


def _problem(entry: AuditEntry, seq: int, previous: str) -> str | None:
    if entry.seq != seq:
        return f"entry {seq} is missing, the next one is {entry.seq}"
    if entry.previous != previous:
        return "it does not follow from the entry before"
    if entry != _link(entry.tenant, seq, previous, entry.entry, entry.occurred_at):
        return "it was changed after it was written"
    return None


def _link(tenant: str, seq: int, previous: str, entry: dict[str, Any], occurred_at: datetime) -> AuditEntry:
    moment = occurred_at.astimezone(UTC)
    content = [previous, tenant, seq, moment.isoformat(timespec="microseconds"), entry]
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return AuditEntry(tenant, seq, entry, previous, hashlib.sha256(canonical.encode()).hexdigest(), moment)


def _pair(entry: dict[str, Any], now: datetime) -> tuple[dict[str, Any], datetime]:
    return entry, now
