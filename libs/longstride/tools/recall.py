"""``recall``: an earlier result that the context no longer holds."""

from typing import Annotated

from pydantic import Field

from longstride.tools.tool import Arguments, PlannerTool


class RecallArguments(Arguments):
    """Arguments of ``recall``."""

    step: Annotated[int, Field(ge=1)]
    """The step's number."""


class Recall(PlannerTool[RecallArguments]):
    """See ``longstride.agent.transitions.recall``."""

    name = "recall"
    description = "Read the result of one of your earlier steps again."
    arguments = RecallArguments
    example = {"step": 3}
