"""Trajectories: finished episodes, ready to be learned from."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from longstride.contracts.artifact import ArtifactRef
from longstride.storage.artifact_rows import ArtifactRows
from longstride.storage.transaction import Transaction


@dataclass(frozen=True, slots=True)
class StoredTrajectory:
    """See ``tables.TrajectoryRow``."""

    task_id: str
    session_id: str
    tenant: str
    policy: str
    outcome: str
    reason: str
    ref: ArtifactRef
    """The trajectory itself."""
    group_id: str | None = None
    policy_version: int | None = None
    created_at: datetime | None = None
    """Set by the database."""


_NAMES = "task_id, session_id, tenant, policy, outcome, reason, ref, group_id, policy_version"
_ADD = f"INSERT INTO trajectories ({_NAMES}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
_SELECT = f"SELECT {_NAMES}, created_at FROM trajectories"
_UNTRAINED = f"""
    {_SELECT} t WHERE policy = %(policy)s AND policy_version >= %(least_version)s
      AND NOT EXISTS (SELECT FROM training_ledger l WHERE l.policy = t.policy AND l.task_id = t.task_id)
      AND NOT EXISTS (
          SELECT FROM tasks s WHERE s.tenant = t.tenant AND s.group_id = t.group_id AND s.outcome IS NULL)
      AND (SELECT r.value FROM rewards r WHERE r.task_id = t.task_id ORDER BY r.version DESC LIMIT 1) IS NOT NULL
    ORDER BY created_at, task_id LIMIT %(limit)s"""

_RUNNING = "SELECT count(*) FROM tasks WHERE group_id IS NOT NULL AND outcome IS NULL"


class Trajectories:
    """The ``trajectories`` table."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def add(self, trajectory: StoredTrajectory) -> None:
        """Keep a trajectory, and its object from the orphan collector; the first of a task stays."""
        t = trajectory
        ref = Jsonb(t.ref.model_dump(mode="json"))
        row = (t.task_id, t.session_id, t.tenant, t.policy, t.outcome, t.reason, ref, t.group_id, t.policy_version)
        self._transaction.later(_ADD, row)
        ArtifactRows(self._transaction).add(t.ref, session_id=t.session_id, kind="trajectory", task_id=t.task_id)

    def get(self, task_id: str) -> StoredTrajectory | None:
        """A task's trajectory."""
        return self._transaction.row(_stored, f"{_SELECT} WHERE task_id = %s", (task_id,))

    def for_group(self, tenant: str, group_id: str) -> list[StoredTrajectory]:
        """Sibling rollouts, oldest first."""
        sql = f"{_SELECT} WHERE tenant = %s AND group_id = %s ORDER BY created_at, task_id"
        return self._transaction.rows(_stored, sql, (tenant, group_id))

    def untrained(self, policy: str, limit: int, *, least_version: int = 0) -> list[StoredTrajectory]:
        """Trajectories that an update may claim, oldest first: of ``policy`` from ``least_version`` on, with token records
        and a reward, unclaimed, and with no sibling that still runs."""
        wanted = {"policy": policy, "limit": limit, "least_version": least_version}
        return self._transaction.rows(_stored, _UNTRAINED, wanted)

    def running(self) -> int:
        """Rollouts of groups that have not ended yet: trajectories to come, of whatever policy."""
        count: int = self._transaction.value(_RUNNING)
        return count


def _stored(
    task_id: str,
    session_id: str,
    tenant: str,
    policy: str,
    outcome: str,
    reason: str,
    ref: dict[str, Any],
    group_id: str | None,
    policy_version: int | None,
    created_at: datetime,
) -> StoredTrajectory:
    where = ArtifactRef.model_validate(ref)
    return StoredTrajectory(
        task_id, session_id, tenant, policy, outcome, reason, where, group_id, policy_version, created_at
    )
