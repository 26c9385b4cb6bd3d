"""``python``: a program."""

from typing import Annotated

from pydantic import StringConstraints

from longstride.contracts.v1.environment import WORKSPACE
from longstride.tools.tool import Arguments, Bench, Tool, ToolResult, of_execution


class PythonArguments(Arguments):
    """Arguments of ``python``."""

    code: Annotated[str, StringConstraints(min_length=1, max_length=65_536)]
    """The program; print what you want to see."""


class Python(Tool[PythonArguments]):
    """``python3 -c`` of the host's own interpreter, with its standard library."""

    name = "python"
    description = (
        f"Run a Python 3 program in the workspace ({WORKSPACE}) and read what it prints. "
        "No network but the hosts that the task names, through HTTP_PROXY. "
        "Each call is a new process: only files in the workspace are kept, not variables."
    )
    arguments = PythonArguments
    example = {"code": "print(sum(range(10)))"}

    def run(self, arguments: PythonArguments, bench: Bench) -> ToolResult:
        """Run it; a traceback is a part of the output."""
        return of_execution(bench.run("python3", "-c", arguments.code))
