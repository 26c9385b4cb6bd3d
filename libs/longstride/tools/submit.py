"""``submit``: the end of a task, if its checks agree."""

from typing import Annotated

from pydantic import Field, StringConstraints

from longstride.tools.tool import Arguments, Bench, Tool, ToolResult


class SubmitArguments(Arguments):
    """Arguments of ``submit``."""

    answer: Annotated[str, StringConstraints(max_length=8192)]
    """The answer, as short as the task wants it."""
    artifacts: Annotated[
        tuple[Annotated[str, StringConstraints(min_length=1, max_length=255)], ...], Field(max_length=64)
    ] = ()
    """Files of the workspace to hand in, by their paths."""


class Submit(Tool[SubmitArguments]):
    """The executor judges the submission; see ``Examiner``."""

    name = "submit"
    description = "Hand in the answer, and files if the task asks for some. The task's checks then run."
    arguments = SubmitArguments
    example = {"answer": "42", "artifacts": ["report.csv"]}
    changes_workspace = False

    def run(self, arguments: SubmitArguments, bench: Bench) -> ToolResult:
        """Accepted: nothing to do beyond the judgement."""
        return ToolResult("ok", b"submitted")
