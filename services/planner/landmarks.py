"""The landmarks of a task's trace: where it planned, reflected and compacted, and what it was refused."""

from collections.abc import Iterable

from longstride.agent import events as e
from longstride.observability import names
from longstride.observability.spans import add_event, span

REASON = 256
"""Characters of a refusal that its event tells."""


def mark(happened: Iterable[e.TaskEvent]) -> None:
    """Write a short span for each landmark, under the current one, and an event of it for each call that was refused."""
    for event in happened:
        if isinstance(event, e.StepStarted) or revises(event):
            with span(names.PLAN, attributes={names.STEP: getattr(event, "step", None)}):
                pass
        if isinstance(event, e.ActionObserved) and event.observation.status == "denied":
            add_event(names.DENIED, {names.STEP: event.step, names.REASON: event.observation.text[:REASON]})
        if isinstance(event, e.ActionObserved) and event.reflection:
            with span(names.REFLECT, attributes={names.STEP: event.step}):
                pass
        elif isinstance(event, e.ContextCompacted):
            with span(names.COMPACT):
                pass


def revises(event: e.TaskEvent) -> bool:
    """The policy gave a new plan."""
    return isinstance(event, e.ActionProposed) and event.action is not None and event.action.plan is not None
