"""Keeping room: seal what is long, compact what is nearly full."""

from longstride.agent.context import compact, progress, segment
from longstride.agent.decision import Decision, Store
from longstride.agent.events import ContextCompacted, ContextSealed


def keep_room(decision: Decision) -> None:
    """Before a model call: compact a nearly full context, and seal a long tail."""
    if decision.task.context.nearly_full:
        compact_context(decision)
    if decision.task.context.overlong:
        seal(decision)


def seal(decision: Decision) -> None:
    """Move the tail into an object."""
    ref, data = segment(decision.task.context, decision.task.session_id)
    decision.effect(Store(ref, data))
    decision.record(ContextSealed(ref=ref))


def compact_context(decision: Decision) -> None:
    """Replace the context by opening, summary and last exchange; by the bare minimum when that wins too little."""
    context = decision.task.context
    archived, data = segment(context, decision.task.session_id)
    soft = compact(context, archived, decision.task.plan)
    hard = not progress(context, soft)
    messages = compact(context, archived, decision.task.plan, hard=True) if hard else soft
    decision.effect(Store(archived, data))
    decision.record(ContextCompacted(at=decision.now, messages=messages, archived=archived, hard=hard))
