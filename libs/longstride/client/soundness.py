"""Refusing what cannot be published as a sentence; the planner asks the same of whoever publishes otherwise."""

from typing import Any, TypeVar

from pydantic import ValidationError

from longstride.agent.soundness import objection
from longstride.client.errors import UsageProblem
from longstride.contracts.envelope import Envelope, explain, seal
from longstride.contracts.model import Contract
from longstride.contracts.v1.commands import SubmitTask

M = TypeVar("M", bound=Contract)
NAMES = {"tenant": "tenant", "session_id": "session", "task_id": "task id"}
"""What people call the fields of an envelope."""


def require_sound(task: SubmitTask) -> None:
    """Let a task be published. Which tools of MCP servers there are is known to the planner alone.

    Raises:
        UsageProblem: it cannot be carried out; the text says why.
    """
    from longstride.policies.naming import unnameable
    from longstride.tools.mcp.listing import SEPARATOR
    from longstride.tools.names import BUILTIN

    elsewhere = [name for name in task.tools or () if SEPARATOR in name]
    if why := objection(task, (*BUILTIN, *elsewhere)) or unnameable(task.policy):
        raise UsageProblem(f"not a task: {why}")


def message(model: type[M], **fields: Any) -> M:
    """A message of these fields.

    Raises:
        UsageProblem: one does not fit; the text names it.
    """
    try:
        return model(**fields)
    except ValidationError as error:
        raise UsageProblem(explain(error)) from error


def sealed(content: Contract, **about: str) -> Envelope:
    """An envelope for a message that nothing caused.

    Raises:
        UsageProblem: a name in ``about`` cannot be one.
    """
    try:
        return seal(content, **about)
    except ValidationError as error:
        names = [str(problem["loc"][0]) for problem in error.errors()]
        raise UsageProblem("; ".join(_unfit(name, about[name]) for name in names if name in about)) from error


def _unfit(field: str, value: str) -> str:
    rule = "1 to 128 letters, digits and . _ : -, the first a letter or a digit"
    return f"the {NAMES.get(field, field)} {value[:200]!r} cannot be one: it must be {rule}"
