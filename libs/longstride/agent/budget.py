"""Budgets: hard limits, checked before anything more is spent."""

from collections.abc import Iterator
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from longstride.agent.allowance import TOOL_BUDGETS
from longstride.agent.number import plain
from longstride.agent.task import Task
from longstride.contracts.v1.action import Usage
from longstride.contracts.v1.events import EndReason
from longstride.contracts.v1.limits import Limits


class Exhausted(NamedTuple):
    """Which budget ran out, and how far the task got."""

    reason: EndReason
    detail: str


def exhausted(task: Task, now: datetime) -> Exhausted | None:
    """The first budget that leaves no room for another step, or ``None``."""
    limits, spent = task.submit.limits, task.spent
    rows: tuple[tuple[EndReason, float, float | None, str], ...] = (
        ("wall_clock_exhausted", task.running_s(now), limits.wall_clock_s, "seconds of running time"),
        ("steps_exhausted", task.step, limits.steps, "steps"),
        ("tokens_exhausted", spent.tokens, limits.tokens, "tokens"),
        ("cost_exhausted", spent.cost_usd, limits.cost_usd, "US dollars"),
        (
            "format_errors_exhausted",
            task.format_errors,
            limits.format_errors,
            "answers in a row that are not an action",
        ),
        ("submissions_exhausted", task.submissions, limits.submissions, "submissions that did not pass"),
    )
    over = ((reason, used, most, what) for reason, used, most, what in rows if most is not None and used >= most)
    return next(
        (
            Exhausted(reason, f"{plain(used)} of {plain(most)} {what} used")
            for reason, used, most, what in chain(over, _of_tools(limits, task.tools_spent))
        ),
        None,
    )


def _of_tools(limits: Limits, spent: Usage) -> Iterator[tuple[EndReason, float, float, str]]:
    for budget in TOOL_BUDGETS:
        used, most = budget.of(spent), budget.most(limits)
        if most is not None and budget.is_used_up(most - used):
            yield budget.reason, used, most, budget.what


def overspent(task: Task, now: datetime) -> Exhausted | None:
    """The budget that a call in flight has overrun: tokens, money or time. An action already chosen is then not carried out."""
    verdict = exhausted(task, now)
    return (
        verdict
        if verdict and verdict.reason in ("tokens_exhausted", "cost_exhausted", "wall_clock_exhausted")
        else None
    )
