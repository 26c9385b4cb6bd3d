"""Steps: a projection of the events, for dashboards and lists."""

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, TypedDict, Unpack

from psycopg.types.json import Jsonb

from longstride.storage.columns import columns
from longstride.storage.transaction import Transaction


class StepChanges(TypedDict, total=False):
    """The columns of ``tables.StepRow`` that a transition may set."""

    tool: str | None
    arguments: dict[str, Any] | None
    thought: str | None
    status: str
    observation: str | None
    checks_passed: int | None
    checks_total: int | None
    input_tokens: int
    output_tokens: int
    cost_usd: float
    model_ms: float | None
    tool_ms: float | None
    policy: str | None
    policy_version: int | None
    revises: int | None
    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class StepSummary:
    """See ``tables.StepRow``."""

    task_id: str
    step: int
    tool: str | None
    arguments: dict[str, Any] | None
    thought: str | None
    status: str
    observation: str | None
    checks_passed: int | None
    checks_total: int | None
    input_tokens: int
    output_tokens: int
    cost_usd: float
    model_ms: float | None
    tool_ms: float | None
    policy: str | None
    policy_version: int | None
    revises: int | None
    started_at: datetime
    ended_at: datetime | None


class Steps:
    """The ``steps`` table."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def upsert(self, task_id: str, step: int, **changes: Unpack[StepChanges]) -> None:
        """Set some columns of a step, which is made when it is not there; the others keep their values."""
        arguments = changes.get("arguments")
        values: dict[str, Any] = {**changes, "task_id": task_id, "step": step}
        if arguments is not None:
            values["arguments"] = Jsonb(arguments)
        self._transaction.later(_upsert(tuple(changes)), values)

    def for_task(self, task_id: str) -> list[StepSummary]:
        """In order."""
        sql = f"SELECT {columns(StepSummary)} FROM steps WHERE task_id = %s ORDER BY step"
        return self._transaction.rows(StepSummary, sql, (task_id,))

    def clear(self, task_id: str) -> None:
        """Before rebuilding them from the events."""
        self._transaction.later("DELETE FROM steps WHERE task_id = %s", (task_id,))


@lru_cache(maxsize=256)
def _upsert(changed: tuple[str, ...]) -> str:
    unknown = set(changed) - StepChanges.__annotations__.keys()
    if unknown:
        raise ValueError(f"steps have no column {', '.join(sorted(unknown))}")
    names = ("task_id", "step", *changed)
    action = f"UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in changed)}" if changed else "NOTHING"
    return f"""
        INSERT INTO steps ({", ".join(names)}) VALUES ({", ".join(f"%({name})s" for name in names)})
        ON CONFLICT (task_id, step) DO {action}"""
