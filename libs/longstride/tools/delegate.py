"""``delegate``: parts of a task for other agents."""

from typing import Annotated

from pydantic import Field, StringConstraints

from longstride.tools.tool import Arguments, PlannerTool


class Part(Arguments):
    """One sub-task."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    """What the other parts call it."""
    instruction: Annotated[str, StringConstraints(min_length=1, max_length=32_768)]
    """What to do, with all that the other agent must know."""
    after: tuple[str, ...] = ()
    """Names of earlier parts that must have succeeded; their answers are passed on."""


class DelegateArguments(Arguments):
    """Arguments of ``delegate``."""

    tasks: Annotated[tuple[Part, ...], Field(min_length=1, max_length=64)]
    """The parts, those that others wait for first."""


class Delegate(PlannerTool[DelegateArguments]):
    """See ``longstride.agent.delegation``."""

    name = "delegate"
    description = (
        "Split off parts of the task for other agents, which work on copies of the workspace, at the same time where "
        "no part waits for another. You go on with their answers."
    )
    arguments = DelegateArguments
    example = {
        "tasks": [
            {"name": "east", "instruction": "Add up amount in east.csv."},
            {"name": "sum", "instruction": "Add the totals up.", "after": ["east"]},
        ]
    }
