"""``process_start``: a program that runs on while the task goes on."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

from pydantic import Field, StringConstraints

from longstride.contracts.v1.environment import WORKSPACE
from longstride.sandbox.base import Execution
from longstride.tools.household import Crowded
from longstride.tools.lookout import nothing
from longstride.tools.process_report import refused, report
from longstride.tools.process_tool import Name
from longstride.tools.shell import FIND_SHELL
from longstride.tools.task_processes import KEPT_NOWHERE, NotKept
from longstride.tools.tool import Arguments, Bench, Tool, ToolResult, of_execution

START = f'cd -- "$2" || exit 1; {FIND_SHELL}'
FIRST_S = 0.3
"""For a program to fail at once, or to say something."""
OWN_LOOPBACK = (
    "; your other calls cannot reach its ports: this executor cannot put two sandboxes into one network. Talk with it by "
    "process_send and process_poll, or by files"
)


class ProcessStartArguments(Arguments):
    """Arguments of ``process_start``."""

    name: Name
    """What to call it."""
    command: Annotated[str, StringConstraints(min_length=1, max_length=65_536)]
    """The command line. With more than one command, the last one should be preceded by exec."""
    cwd: Annotated[str, StringConstraints(min_length=1, max_length=1024)] = "."
    """The directory to start in."""
    env: Mapping[
        Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], Annotated[str, Field(max_length=32_768)]
    ] = {}
    """Variables to add."""


class ProcessStart(Tool[ProcessStartArguments]):
    """In a sandbox of its own, with the task's workspace."""

    name = "process_start"
    description = (
        f"Start a program that runs on between your calls, such as a server or an interpreter, in the workspace ({WORKSPACE}). "
        "Read its output with process_poll, write to it with process_send, end it with process_stop. Your other calls reach its "
        "ports at 127.0.0.1, and see the files it writes. It ends with the task, and can be lost when the executor is restarted."
    )
    arguments = ProcessStartArguments
    example = {"name": "web", "command": "exec python3 -m http.server 8000"}
    offered = False
    kept = True

    def run(self, arguments: ProcessStartArguments, bench: Bench) -> ToolResult:
        """Start it, and look at it for a moment."""
        if bench.processes is None:
            return refused(KEPT_NOWHERE)
        if any("\0" in text for text in (arguments.command, arguments.cwd, *arguments.env.values())):
            return refused("a NUL character cannot be passed to a program")
        plain = bench.command("sh", "-c", START, "sh", arguments.command, bench.inside(arguments.cwd))
        bounds = bench.processes.bounds
        limits = plain.limits.model_copy(update={"wall_s": bounds.wall_s, "cpu_s": bounds.cpu_s})
        command = bench.bounded(replace(plain, limits=limits, env={**plain.env, **arguments.env}))
        if isinstance(command, Execution):
            return of_execution(command)
        # Its life is not the time of a call, and a budget for that does not end it.
        command = replace(command, limits=command.limits.model_copy(update={"wall_s": bounds.wall_s}))
        try:
            process = bench.processes.start(arguments.name, command, bench.backend, bench.workspace, bench.cancelled)
        except (Crowded, NotKept) as error:
            return refused(str(error))
        process.wait(bench.processes.step, FIRST_S, bench.cancelled, nothing)
        note = "" if bench.backend.capabilities().shares_network else OWN_LOOPBACK
        return report(process, process.peek(), note=note if process.running else "")
