"""Refusing what cannot be a task before it is published; the planner asks the same of whoever publishes otherwise."""

from longstride.agent.soundness import objection
from longstride.client.errors import UsageProblem
from longstride.contracts.v1.commands import SubmitTask


def require_sound(task: SubmitTask) -> None:
    """Let a task be published.

    Raises:
        UsageProblem: it cannot be carried out; the text says why.
    """
    from longstride.tools.registry import builtin_tools

    if why := objection(task, builtin_tools().names):
        raise UsageProblem(f"not a task: {why}")
