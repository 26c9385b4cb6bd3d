"""The landmarks of a task's trace: where it planned, reflected and compacted. Marks without a duration of their own."""

from collections.abc import Iterable

from longstride.agent import events as e
from longstride.observability import names
from longstride.observability.spans import span


def mark(happened: Iterable[e.TaskEvent]) -> None:
    """Write a short span for each landmark, under the current one."""
    for event in happened:
        if isinstance(event, e.StepStarted) or revises(event):
            with span(names.PLAN, attributes={names.STEP: getattr(event, "step", None)}):
                pass
        elif isinstance(event, e.ActionObserved) and event.reflection:
            with span(names.REFLECT, attributes={names.STEP: event.step}):
                pass
        elif isinstance(event, e.ContextCompacted):
            with span(names.COMPACT):
                pass


def revises(event: e.TaskEvent) -> bool:
    """The policy gave a new plan."""
    return isinstance(event, e.ActionProposed) and event.action is not None and event.action.plan is not None
