"""``process_stop``: the end of a process."""

from typing import Annotated

from pydantic import Field

from longstride.tools.live_process import LiveProcess
from longstride.tools.process_report import report
from longstride.tools.process_tool import ProcessArguments, ProcessTool
from longstride.tools.tool import Bench, ToolResult


class ProcessStopArguments(ProcessArguments):
    """Arguments of ``process_stop``."""

    grace_s: Annotated[float, Field(ge=0, le=60)] = 5.0
    """Seconds between asking (end of input, SIGTERM) and killing."""


class ProcessStop(ProcessTool[ProcessStopArguments]):
    """Asks, then kills."""

    name = "process_stop"
    description = (
        "End a process: its input ends, it gets SIGTERM, and it is killed when it does not end; read its last output."
    )
    arguments = ProcessStopArguments
    example = {"name": "web"}

    def ask(self, process: LiveProcess, arguments: ProcessStopArguments, bench: Bench, step: int) -> ToolResult:
        """One that has ended stays as it is."""
        process.stop(min(arguments.grace_s, bench.limits.wall_s), bench.cancelled)
        return report(process, process.poll(step))
