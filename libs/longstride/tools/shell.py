"""``shell``: a command line."""

from typing import Annotated

from pydantic import Field, StringConstraints

from longstride.contracts.v1.environment import WORKSPACE
from longstride.tools.tool import Arguments, Bench, Tool, ToolResult, of_execution

FIND_SHELL = 'if command -v bash >/dev/null 2>&1; then exec bash -c "$1"; else exec sh -c "$1"; fi'
"""bash where the host has it: agents write it, whatever they are told."""


class ShellArguments(Arguments):
    """Arguments of ``shell``."""

    command: Annotated[str, StringConstraints(min_length=1, max_length=65_536)]
    """The command line, for bash."""
    timeout_s: Annotated[float, Field(gt=0)] | None = None
    """Seconds to allow, when less than the task's own limit will do."""


class Shell(Tool[ShellArguments]):
    """Runs in a new sandbox each time: nothing but the workspace stays."""

    name = "shell"
    description = (
        f"Run a command line in the workspace ({WORKSPACE}). No network but the hosts that the task names, "
        "through HTTP_PROXY. Each call starts a new shell: "
        "only files in the workspace are kept, not variables, the directory, or background processes."
    )
    arguments = ShellArguments
    example = {"command": "grep -c ERROR app.log"}

    def run(self, arguments: ShellArguments, bench: Bench) -> ToolResult:
        """Run it."""
        execution = bench.run("sh", "-c", FIND_SHELL, "sh", arguments.command, wall_s=arguments.timeout_s)
        return of_execution(execution)
