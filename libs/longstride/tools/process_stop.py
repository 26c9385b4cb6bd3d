"""``process_stop``: the end of a process."""

from typing import Annotated

from pydantic import Field

from longstride.tools.process_report import refused, report
from longstride.tools.process_start import Name
from longstride.tools.task_processes import KEPT_NOWHERE
from longstride.tools.tool import Arguments, Bench, Tool, ToolResult


class ProcessStopArguments(Arguments):
    """Arguments of ``process_stop``."""

    name: Name
    """Which process."""
    grace_s: Annotated[float, Field(ge=0, le=60)] = 5.0
    """Seconds between asking (end of input, SIGTERM) and killing."""


class ProcessStop(Tool[ProcessStopArguments]):
    """Asks, then kills."""

    name = "process_stop"
    description = (
        "End a process: its input ends, it gets SIGTERM, and it is killed when it does not end; read its last output."
    )
    arguments = ProcessStopArguments
    offered = False
    kept = True

    def run(self, arguments: ProcessStopArguments, bench: Bench) -> ToolResult:
        """One that has ended stays as it is."""
        if bench.processes is None:
            return refused(KEPT_NOWHERE)
        _ = bench.workspace
        process = bench.processes.household.get(arguments.name)
        if process is None:
            return refused(bench.processes.unknown(arguments.name))
        process.stop(min(arguments.grace_s, bench.limits.wall_s), bench.cancelled)
        return report(process, process.poll(bench.processes.step))
