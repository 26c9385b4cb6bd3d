"""Rewards: what checks and people said of a trajectory; each judgement is a version, the highest counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from psycopg.types.json import Jsonb

from longstride.storage.columns import columns
from longstride.storage.transaction import Transaction

Source = Literal["checks", "feedback"]


@dataclass(frozen=True, slots=True)
class StoredReward:
    """See ``tables.RewardRow``."""

    task_id: str
    version: int
    value: float | None
    """``None``: no verdict."""
    components: list[dict[str, Any]]
    source: Source
    reason: str
    by: str | None
    created_at: datetime


_COLUMNS = columns(StoredReward)
_LOCK = "SELECT task_id FROM trajectories WHERE task_id = %s FOR UPDATE"
_ADD = """
    INSERT INTO rewards (task_id, version, value, components, source, reason, by)
    SELECT %(task_id)s, coalesce(max(version), 0) + 1, %(value)s, %(components)s, %(source)s, %(reason)s, %(by)s
    FROM rewards WHERE task_id = %(task_id)s
    RETURNING version"""


class Rewards:
    """The ``rewards`` table."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def add(
        self,
        task_id: str,
        value: float | None,
        components: Sequence[dict[str, Any]],
        source: Source,
        *,
        reason: str = "",
        by: str | None = None,
    ) -> int:
        """Add a judgement of a trajectory; returns its version. Judgements of one trajectory wait for each other.

        Raises:
            ValueError: the task has no trajectory.
        """
        if self._transaction.value(_LOCK, (task_id,)) is None:
            raise ValueError(
                f"task {task_id} has no trajectory to reward; it has not ended, or its end is not yet recorded"
            )
        values = {"task_id": task_id, "value": value, "source": source, "reason": reason, "by": by}
        version: int = self._transaction.value(_ADD, {**values, "components": Jsonb(list(components))})
        return version

    def latest(self, task_id: str) -> StoredReward | None:
        """The judgement that counts."""
        sql = f"SELECT {_COLUMNS} FROM rewards WHERE task_id = %s ORDER BY version DESC LIMIT 1"
        return self._transaction.row(StoredReward, sql, (task_id,))

    def history(self, task_id: str) -> list[StoredReward]:
        """Every judgement, the first one first."""
        sql = f"SELECT {_COLUMNS} FROM rewards WHERE task_id = %s ORDER BY version"
        return self._transaction.rows(StoredReward, sql, (task_id,))
