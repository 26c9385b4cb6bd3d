"""Task heads: the row that every transition of a task locks, checks and writes."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from psycopg.types.json import Jsonb

from longstride.storage.columns import columns
from longstride.storage.errors import VersionConflict
from longstride.storage.transaction import Transaction


@dataclass(frozen=True, slots=True)
class TaskHead:
    """The head of a task; see ``tables.TaskRow`` for each column."""

    id: str
    session_id: str
    tenant: str
    status: str
    version: int
    instruction: str
    track: str
    priority: int = 5
    policy: str | None = None
    concurrency_key: str | None = None
    idempotency_key: str | None = None
    group_id: str | None = None
    parent_task_id: str | None = None
    reply_to: str | None = None
    correlation_id: str | None = None
    earlier_askers: list[list[str | None]] | None = None
    outcome: str | None = None
    reason: str | None = None
    answer: str | None = None
    reward: float | None = None
    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    traceparent: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    created_at: datetime | None = None
    """Set by the database when ``None``."""
    updated_at: datetime | None = None
    """Set by the database at every write."""


_FIXED = {
    "id",
    "session_id",
    "tenant",
    "instruction",
    "priority",
    "concurrency_key",
    "idempotency_key",
    "group_id",
    "parent_task_id",
    "created_at",
    "updated_at",
}
_COLUMNS = columns(TaskHead)
_INSERTED = [field.name for field in fields(TaskHead) if field.name not in ("created_at", "updated_at")]
_SAVED = [field.name for field in fields(TaskHead) if field.name not in _FIXED]

_HEAD = f"SELECT {_COLUMNS} FROM tasks WHERE id = %s"
_INSERT = f"""
    INSERT INTO tasks ({", ".join(_INSERTED)}, created_at)
    VALUES ({", ".join(f"%({name})s" for name in _INSERTED)}, coalesce(%(created_at)s, now()))"""
_SAVE = f"""
    UPDATE tasks SET {", ".join(f"{name} = %({name})s" for name in _SAVED)}, updated_at = now()
    WHERE id = %(id)s AND version = %(expected_version)s"""
_LIST = f"""
    SELECT {_COLUMNS} FROM tasks
    WHERE (%(status)s::text IS NULL OR status = %(status)s)
      AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
      AND (%(session_id)s::text IS NULL OR session_id = %(session_id)s)
      AND (%(before)s::text IS NULL OR (created_at, id) < (SELECT b.created_at, b.id FROM tasks b WHERE b.id = %(before)s))
    ORDER BY created_at DESC, id DESC LIMIT %(limit)s"""
_LOCK_SESSION = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 1))"
_FOREIGN = """
    SELECT session_id FROM (
        SELECT DISTINCT ON (session_id) session_id, tenant FROM tasks WHERE session_id = ANY(%s)
        ORDER BY session_id, created_at, id) AS first
    WHERE tenant <> %s LIMIT 1"""

_ADMISSION_LOCK = 0x6C6F6E67
"""The advisory lock that admissions queue behind: one key for every planner on this database."""
_SPARE = 4
"""Candidates a tenant beyond the free slots, in place of those that somebody holds locked."""
_PICK = """
    WITH RECURSIVE
    free AS MATERIALIZED (
        SELECT slots, CASE WHEN slots > 0 THEN slots + %(spare)s ELSE 0 END AS considered
        FROM (SELECT greatest(0, %(capacity)s - count(*)) AS slots FROM tasks WHERE status = 'running') AS f
    ),
    waiting(tenant) AS (
        (SELECT tenant FROM tasks WHERE status = 'queued' ORDER BY tenant LIMIT 1)
        UNION ALL
        SELECT (SELECT q.tenant FROM tasks q WHERE q.status = 'queued' AND q.tenant > w.tenant ORDER BY q.tenant LIMIT 1)
        FROM waiting w WHERE w.tenant IS NOT NULL
    ),
    candidates AS (
        SELECT c.id, coalesce(t.turn, 0) AS turn,
               row_number() OVER (PARTITION BY w.tenant ORDER BY c.priority DESC, c.created_at, c.id) AS place
        FROM waiting w
        LEFT JOIN tenant_turns t ON t.tenant = w.tenant
        CROSS JOIN LATERAL (
            SELECT q.id, q.priority, q.created_at FROM tasks q
            WHERE q.tenant = w.tenant AND q.status = 'queued' AND q.id <> ALL(%(not_these)s::text[])
              AND (q.concurrency_key IS NULL OR (
                  NOT EXISTS (
                      SELECT FROM tasks a WHERE a.status IN ('running', 'parked')
                      AND a.tenant = q.tenant AND a.concurrency_key = q.concurrency_key)
                  AND NOT EXISTS (
                      SELECT FROM tasks e WHERE e.status = 'queued' AND e.id <> ALL(%(not_these)s::text[])
                      AND e.tenant = q.tenant AND e.concurrency_key = q.concurrency_key
                      AND (-e.priority, e.created_at, e.id) < (-q.priority, q.created_at, q.id))))
            ORDER BY q.priority DESC, q.created_at, q.id
            LIMIT (SELECT considered FROM free)
        ) c
        ORDER BY place, turn, w.tenant LIMIT (SELECT considered FROM free)
    )
    SELECT t.id, t.tenant FROM candidates c JOIN tasks t ON t.id = c.id
    WHERE t.status = 'queued'
    ORDER BY c.place, c.turn, t.tenant LIMIT (SELECT slots FROM free)
    FOR UPDATE OF t SKIP LOCKED"""
_TAKE_TURNS = """
    INSERT INTO tenant_turns (tenant, turn)
    SELECT tenant, (SELECT coalesce(max(turn), 0) FROM tenant_turns) + max(place)
    FROM unnest(%s::text[]) WITH ORDINALITY AS served(tenant, place) GROUP BY tenant
    ON CONFLICT (tenant) DO UPDATE SET turn = excluded.turn"""


class Tasks:
    """The ``tasks`` table."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._locked: dict[str, int] = {}
        self._foreseen: dict[str, Callable[[], TaskHead | None]] = {}

    def insert(self, head: TaskHead) -> None:
        """Add a task.

        Raises:
            AlreadyExists: its id, or its tenant's idempotency key, is taken; at the latest at the commit.
        """
        self._transaction.later(_INSERT, _values(head))
        self._locked[head.id] = head.version

    def head(self, task_id: str, *, lock: bool = True) -> TaskHead | None:
        """The head, locked until the transaction ends unless ``lock=False``."""
        if not lock:
            return self._transaction.row(TaskHead, _HEAD, (task_id,))
        if task_id not in self._foreseen:
            self.foresee(task_id)
        head = self._foreseen.pop(task_id)()
        if head is not None:
            self._locked[task_id] = head.version
        return head

    def foreign_session(self, sessions: Collection[str], tenant: str) -> str | None:
        """One of these sessions that is another tenant's; ``None``: there is none.

        A session is the tenant's whose task was its first. Until the transaction ends no other may become the first: two that ask
        at once are told one after the other.
        """
        for session in sorted(sessions):
            self._transaction.later(_LOCK_SESSION, (session,))
        found: str | None = self._transaction.value(_FOREIGN, (list(sessions), tenant))
        return found

    def foresee(self, task_id: str) -> None:
        """``head(task_id)`` will follow: lock and read it along with what is waited for before."""
        self._foreseen[task_id] = self._transaction.promise(TaskHead, f"{_HEAD} FOR UPDATE", (task_id,))

    def save(self, head: TaskHead, expected_version: int) -> None:
        """Write the head over the one of ``expected_version``.

        Raises:
            VersionConflict: the stored head has another version, or is gone.
        """
        values = {**_values(head), "expected_version": expected_version}
        locked = self._locked.get(head.id)
        if locked is None:
            if self._transaction.count(_SAVE, values) == 0:
                raise VersionConflict(f"task {head.id} is no longer at version {expected_version}")
        elif locked != expected_version:
            raise VersionConflict(f"task {head.id} is at version {locked}, not {expected_version}")
        else:  # the row is locked at that version: the write cannot miss, so it need not be waited for
            self._transaction.later(_SAVE, values)
            self._locked[head.id] = head.version

    def by_idempotency_key(self, tenant: str, key: str) -> TaskHead | None:
        """The task first submitted under ``key``."""
        sql = f"SELECT {_COLUMNS} FROM tasks WHERE tenant = %s AND idempotency_key = %s"
        return self._transaction.row(TaskHead, sql, (tenant, key))

    def admit(self, capacity: int, not_these: Collection[str] = ()) -> list[str]:
        """Lock and return the queued tasks that may start now, so that at most ``capacity`` run.

        Tenants take turns, the one served longest ago first; within a tenant priority, then age decides. Of one
        tenant and concurrency key only one task is active (running or parked), and a held key or a locked task is
        passed over, so that nothing waits behind it. Call it last in the transaction, and start every task it
        returns: admissions of all planners queue behind one advisory lock until they commit.

        Args:
            capacity: over all planners.
            not_these: tasks that the caller cannot start; they stay queued.
        """
        self._transaction.later("SELECT pg_advisory_xact_lock(%s)", (_ADMISSION_LOCK,))
        picked = self._transaction.rows(
            _pair, _PICK, {"capacity": capacity, "spare": _SPARE, "not_these": list(not_these)}
        )
        if picked:
            self._transaction.later(_TAKE_TURNS, ([tenant for _, tenant in picked],))
        return [task_id for task_id, _ in picked]

    def matching(self, part: str, limit: int = 10) -> "list[TaskHead]":
        """Tasks whose id begins (after ``task_``) or ends with ``part``, newest first: abbreviations that people type."""
        escaped = part.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        patterns = [f"{escaped}%", f"task\\_{escaped}%", f"%{escaped}"]
        sql = f"SELECT {_COLUMNS} FROM tasks WHERE id LIKE ANY(%s) ORDER BY created_at DESC, id DESC LIMIT %s"
        return self._transaction.rows(TaskHead, sql, (patterns, limit))

    def children(self, parent_task_id: str) -> list[TaskHead]:
        """The tasks that ``parent_task_id`` delegated, oldest first."""
        sql = f"SELECT {_COLUMNS} FROM tasks WHERE parent_task_id = %s ORDER BY created_at, id"
        return self._transaction.rows(TaskHead, sql, (parent_task_id,))

    def over(self, task_ids: Sequence[str]) -> set[str]:
        """Those of these tasks that have ended, or that nobody knows."""
        sql = "SELECT id FROM tasks WHERE id = ANY(%s) AND status IN ('queued', 'running', 'parked')"
        return set(task_ids) - set(self._transaction.values(sql, (list(task_ids),)))

    def list(
        self,
        *,
        status: str | None = None,
        tenant: str | None = None,
        session_id: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> list[TaskHead]:
        """Heads, newest first; ``before`` is the id of the last task of the previous page."""
        wanted = {"status": status, "tenant": tenant, "session_id": session_id, "limit": limit, "before": before}
        return self._transaction.rows(TaskHead, _LIST, wanted)


def _values(head: TaskHead) -> dict[str, object]:
    values = {field.name: getattr(head, field.name) for field in fields(head)}
    return {**values, "earlier_askers": head.earlier_askers and Jsonb(head.earlier_askers)}


def _pair(first: str, second: str) -> tuple[str, str]:
    return first, second
