"""The ``steps`` rows of a task's events: what dashboards and the command line read."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from longstride.agent import events as e
from longstride.agent.task import Task
from longstride.storage.steps import StepChanges as Columns

VALUE = 2048
"""Characters kept of each value; the events hold the whole."""


def project(task: Task, happened: Iterable[e.TaskEvent]) -> dict[int, Columns]:
    """Step → the columns that change. ``task`` is the state after the events."""
    rows: dict[int, Columns] = {}
    for event in happened:
        if (columns := COLUMNS.get(type(event))) is not None:
            rows.setdefault(getattr(event, "step", task.step), {}).update(columns(task, event))
    return rows


def _started(task: Task, event: e.StepStarted) -> Columns:
    corrects = task.failed_step if task.failed_step == event.step - 1 else None
    return {"status": "generating", "started_at": event.at, "revises": corrects}


def _proposed(task: Task, event: e.ActionProposed) -> Columns:
    action, usage = event.action, event.usage
    columns: Columns = {
        "status": "acting" if action else "format_error",
        "tool": action.tool if action else None,
        "arguments": {k: _cut(v) for k, v in action.arguments.items()} if action else None,
        "thought": _cut(action.thought) if action else None,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": usage.cost_usd,
        "model_ms": usage.wall_ms,
        "policy": event.policy,
        "policy_version": event.policy_version,
    }
    return columns if action else {**columns, "observation": _cut(event.format_error), "ended_at": event.at}


def _observed(task: Task, event: e.ActionObserved) -> Columns:
    return {
        "status": event.observation.status,
        "observation": _cut(event.observation.text),
        "checks_passed": sum(check.passed for check in event.checks) if event.checks else None,
        "checks_total": len(event.checks) or None,
        "tool_ms": event.usage.wall_ms,
        "ended_at": event.at,
    }


def _waiting(task: Task, event: e.TaskEvent) -> Columns:
    return {"status": "waiting"}


def _decided(task: Task, event: e.ApprovalDecided) -> Columns:
    return {"status": "acting" if event.approved else "denied"}


def _ended(task: Task, event: e.Ended) -> Columns:
    """A step in flight when its task ends is over, too."""
    return {"ended_at": event.at} if task.step else {}


def _cut(value: Any) -> Any:
    return value[:VALUE] if isinstance(value, str) else value


COLUMNS: Mapping[type, Callable[[Task, Any], Columns]] = {
    e.StepStarted: _started,
    e.ActionProposed: _proposed,
    e.ActionObserved: _observed,
    e.ApprovalRequested: _waiting,
    e.SubtasksDelegated: _waiting,
    e.ApprovalDecided: _decided,
    e.Ended: _ended,
}
