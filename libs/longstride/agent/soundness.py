"""Whether a submission can be a task at all: what its schema alone cannot say. Asked at both ends of the queue."""

from collections.abc import Collection

from longstride.contracts.v1.commands import SubmitTask


def objection(submit: SubmitTask, tools: Collection[str]) -> str | None:
    """Why it cannot be carried out whatever the agent does, or ``None``.

    Args:
        submit: what somebody wants.
        tools: the names there are.
    """
    return _unknown_tools(submit, tools)


def _unknown_tools(submit: SubmitTask, tools: Collection[str]) -> str | None:
    unknown = [name for name in dict.fromkeys(submit.tools or ()) if name not in tools]
    return f"there is no tool {', '.join(map(repr, unknown))}; the tools are {', '.join(tools)}" if unknown else None
