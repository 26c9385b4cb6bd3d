"""The audit log: who did what, append-only, hash-chained a tenant, so that a change or a gap shows."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from longstride.storage.audit_chain import (
    GENESIS,
    AuditRow,
    BrokenLink,
    Gap,
    Link,
    Walk,
    merged,
    moment,
    written,
)
from longstride.storage.columns import columns
from longstride.storage.transaction import Transaction

CHECKPOINT = "rows_removed"
"""The kind of the entry that says which rows retention removed, and the hash up to there."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What ``verify`` found."""

    tenant: str
    rows: int
    """That are there and hold."""
    head: Link
    """The last row that holds; note it elsewhere."""
    removed: tuple[Gap, ...] = field(default=())
    """By retention."""
    broken: BrokenLink | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """A legal hold: nothing it covers is removed."""

    id: int
    tenant: str
    task_id: str | None
    """``None``: all of the tenant's."""
    reason: str
    placed_by: str
    placed_at: datetime
    released_by: str | None
    released_at: datetime | None


_COLUMNS = """tenant, seq, entry::text, previous, sha256,
    CASE WHEN occurred_at BETWEEN '0001-01-02' AND '9999-12-30' THEN occurred_at ELSE 'epoch' END AS occurred_at"""
"""A time that Python cannot hold was not written by anybody: as another one it breaks the chain where it stands."""
_LINK = """encode(sha256(convert_to(
    '["' || {previous} || '",' || %(name)s || ',' || {seq} || ',"' || %(moment)s || '",' || %(entry)s || ']', 'UTF8')), 'hex')"""
_APPEND = f"""
    WITH head AS (
        INSERT INTO audit_heads AS h (tenant, seq, previous, sha256)
        VALUES (%(tenant)s, 1, '{GENESIS}', {_LINK.format(previous=f"'{GENESIS}'", seq=1)})
        ON CONFLICT (tenant) DO UPDATE
        SET seq = h.seq + 1, previous = h.sha256, sha256 = {_LINK.format(previous="h.sha256", seq="(h.seq + 1)")}
        RETURNING seq, previous, sha256)
    INSERT INTO audit (tenant, seq, entry, previous, sha256, occurred_at)
    SELECT %(tenant)s, seq, %(entry)s::json, previous, sha256, %(moment)s::timestamptz FROM head"""
_READ = f"""
    SELECT {_COLUMNS} FROM audit WHERE tenant = %(tenant)s AND seq > %(after)s
      AND (%(since)s::timestamptz IS NULL OR occurred_at >= %(since)s)
      AND (%(until)s::timestamptz IS NULL OR occurred_at < %(until)s)
    ORDER BY seq LIMIT %(limit)s"""
_HEAD = "SELECT seq, sha256 FROM audit_heads WHERE tenant = %s"
_TENANTS = """
    SELECT tenant FROM audit_heads UNION SELECT DISTINCT tenant FROM audit
    UNION SELECT DISTINCT tenant FROM tasks WHERE ended_at IS NOT NULL ORDER BY 1"""
"""A task that has ended has been audited: who empties the audit must not be able to hide that there was one."""
_UNTOLD = f"""
    SELECT count(*) FROM tasks WHERE tenant = %(tenant)s AND ended_at < coalesce(
        (SELECT occurred_at FROM audit WHERE tenant = %(tenant)s AND previous = '{GENESIS}' AND seq = 1) - interval '5 minutes',
        CASE WHEN EXISTS (SELECT FROM audit_heads WHERE tenant = %(tenant)s) THEN '-infinity' ELSE 'infinity' END::timestamptz)"""
"""Tasks that ended before there was a first entry, by more than planners' clocks differ, or without there being one. Where retention
has removed the first entry, a checkpoint tells of it."""
_CHECKPOINT = f"""
    SELECT seq, entry::text FROM audit WHERE tenant = %s AND entry->>'kind' = '{CHECKPOINT}' ORDER BY seq DESC LIMIT 1"""
_PAGE = 1000

_KEEP_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('longstride.audit.keep.' || %s, 0))"
_RETAIN = """
    INSERT INTO audit_retention (tenant, days) VALUES (%(tenant)s, %(days)s)
    ON CONFLICT (tenant) DO UPDATE SET days = excluded.days"""
_DAYS = "SELECT days FROM audit_retention WHERE tenant = %s"
_OLD = """
    SELECT a.seq, a.sha256, a.entry->>'kind' FROM audit a
    WHERE a.tenant = %(tenant)s AND a.occurred_at < %(before)s AND a.seq <> %(checkpoint)s
      AND NOT EXISTS (
          SELECT FROM audit_holds h WHERE h.tenant = a.tenant AND h.released_at IS NULL
          AND (h.task_id IS NULL OR h.task_id = a.entry->>'task_id'))
    ORDER BY a.seq LIMIT %(limit)s"""
_REMOVE = "DELETE FROM audit WHERE tenant = %s AND seq = ANY(%s)"
_HELD = columns(Hold)
_HOLD = f"INSERT INTO audit_holds (tenant, task_id, reason, placed_by) VALUES (%s, %s, %s, %s) RETURNING {_HELD}"
_RELEASE = f"""
    UPDATE audit_holds SET released_by = %s, released_at = now() WHERE id = %s AND released_at IS NULL
    RETURNING {_HELD}"""
_HOLDS = f"""
    SELECT {_HELD} FROM audit_holds WHERE (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
      AND (%(released)s OR released_at IS NULL) ORDER BY id"""


class Audit:
    """The ``audit`` table, and what decides how long its rows stay."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._waiting: list[tuple[str, str, str]] = []

    # Writing

    def append(self, tenant: str, entry: Mapping[str, Any], at: datetime | None = None) -> None:
        """Add an entry, at the very end of this transaction.

        A tenant's transactions queue behind the head of its chain, so it is locked last and for the commit alone.
        """
        self._waiting.append((tenant, moment(at or datetime.now(UTC)), written(entry)))

    def write(self) -> None:
        """For ``UnitOfWork``: queue what was appended. Tenants in one order, so that no two transactions wait in a ring."""
        for tenant, at, text in sorted(self._waiting, key=lambda waiting: waiting[0]):
            row = {"tenant": tenant, "name": json.dumps(tenant), "moment": at, "entry": text}
            self._transaction.later(_APPEND, row)
        self._waiting.clear()

    # Reading

    def read(
        self,
        tenant: str,
        after: int = 0,
        limit: int = 100,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[AuditRow]:
        """Rows with a seq above ``after``, in order; those that happened from ``since`` to before ``until``."""
        wanted = {"tenant": tenant, "after": after, "limit": limit, "since": since, "until": until}
        return self._transaction.rows(AuditRow, _READ, wanted)

    def all(self, tenant: str, since: datetime | None = None, until: datetime | None = None) -> Iterator[AuditRow]:
        """Every such row, page by page."""
        after = 0
        while page := self.read(tenant, after, _PAGE, since, until):
            yield from page
            after = page[-1].seq

    def tenants(self) -> list[str]:
        """Those of whom anything is known."""
        return [str(tenant) for tenant in self._transaction.values(_TENANTS)]

    def head(self, tenant: str) -> Link | None:
        """The end of the chain, as the table of heads has it."""
        return self._transaction.row(Link, _HEAD, (tenant,))

    def verify(self, tenant: str, noted: Mapping[int, str] | None = None) -> Verdict:
        """Walk the chain: find the first row that is changed, missing, reordered or made up.

        A cut-off end shows against the table of heads; one that was cut there as well, or a chain written anew, against
        ``noted``: hashes by seq from an earlier export.
        """
        head = self.head(tenant)  # before the walk: rows that are appended meanwhile lie beyond it
        checkpoint = self._checkpoint(tenant)
        known = {**({head.seq: head.sha256} if head else {}), **(noted or {})}
        walk = Walk(gaps=checkpoint[1], noted=known)
        if all(walk.take(row) for row in self.all(tenant)):
            walk.end()
        now = self.head(tenant)
        if walk.broken is None and walk.last.seq > (now.seq if now else 0):
            walk.broken = BrokenLink(walk.last.seq, "it lies beyond the end that the table of heads tells of")
        if walk.broken is None and (untold := self._transaction.value(_UNTOLD, {"tenant": tenant})):
            walk.broken = BrokenLink(
                1,
                f"a chain before it is gone: by then {untold} of the tenant's tasks had ended, each of which had entries",
            )
        return Verdict(tenant, walk.rows, walk.last, tuple(checkpoint[1]), walk.broken)

    def _checkpoint(self, tenant: str) -> tuple[int, list[Gap]]:
        """The seq of the latest checkpoint, and the gaps that it tells of."""
        found = self._transaction.row(_pair, _CHECKPOINT, (tenant,))
        return (found[0], list(_gaps(found[1]))) if found else (0, [])

    # Retention and holds

    def retain(self, tenant: str, days: int | None, by: str) -> None:
        """Keep rows for so many days; ``None``: for ever, as without a word."""
        self._transaction.later(_KEEP_LOCK, (tenant,))
        if days is None:
            self._transaction.later("DELETE FROM audit_retention WHERE tenant = %s", (tenant,))
        else:
            self._transaction.later(_RETAIN, {"tenant": tenant, "days": days})
        self.append(tenant, {"kind": "retention_set", "days": days, "by": by})

    def retention(self, tenant: str) -> int | None:
        """Days that rows are kept; ``None``: for ever."""
        days: int | None = self._transaction.value(_DAYS, (tenant,))
        return days

    def hold(self, tenant: str, task_id: str | None, reason: str, by: str) -> Hold:
        """Remove nothing of a tenant, or of one of its tasks, until ``release``."""
        self._transaction.later(_KEEP_LOCK, (tenant,))
        hold = self._transaction.row(Hold, _HOLD, (tenant, task_id, reason, by))
        assert hold is not None, "an INSERT returns its row"
        self.append(tenant, {"kind": "hold_placed", "hold": hold.id, "task_id": task_id, "reason": reason, "by": by})
        return hold

    def release(self, hold_id: int, by: str) -> Hold | None:
        """End a hold; ``None``: there is none that is open."""
        hold = self._transaction.row(Hold, _RELEASE, (by, hold_id))
        if hold is not None:
            self.append(hold.tenant, {"kind": "hold_released", "hold": hold.id, "task_id": hold.task_id, "by": by})
        return hold

    def holds(self, tenant: str | None = None, *, released: bool = False) -> list[Hold]:
        """Open holds, and with ``released`` the others as well."""
        return self._transaction.rows(Hold, _HOLDS, {"tenant": tenant, "released": released})

    def sweep(self, tenant: str, limit: int = 10_000, now: datetime | None = None) -> int:
        """Remove rows that are older than the tenant's retention and under no hold, at most ``limit``; returns how many.

        A new entry of the chain, written in the same transaction, tells which rows are gone and what hash the next one
        follows: the rest stays verifiable, and a removal that nobody may have made still shows.
        """
        self._transaction.later(_KEEP_LOCK, (tenant,))
        days = self.retention(tenant)
        if days is None:
            return 0
        before = (now or datetime.now(UTC)) - timedelta(days=days)
        checkpoint, gaps = self._checkpoint(tenant)
        wanted = {"tenant": tenant, "before": before, "checkpoint": checkpoint, "limit": limit}
        old = self._transaction.rows(_triple, _OLD, wanted)
        if all(kind == CHECKPOINT for _, _, kind in old):
            return 0  # nothing but checkpoints: removing one would write the next
        removed = [Link(seq, sha256) for seq, sha256, _ in old]
        self._transaction.later(_REMOVE, (tenant, [link.seq for link in removed]))
        self.append(
            tenant,
            {"kind": CHECKPOINT, "before": moment(before), "removed": [list(gap) for gap in merged(gaps, removed)]},
        )
        return len(removed)


def _gaps(entry: str) -> Iterator[Gap]:
    """Those that a checkpoint tells of; one that says something else was written by somebody else, and excuses nothing."""
    removed = json.loads(entry).get("removed")
    for gap in removed if isinstance(removed, list) else ():
        match gap:
            case [int(first), int(last), str(sha256)]:
                yield Gap(first, last, sha256)


def _pair(first: int, second: str) -> tuple[int, str]:
    return first, second


def _triple(first: int, second: str, third: str | None) -> tuple[int, str, str | None]:
    return first, second, third
