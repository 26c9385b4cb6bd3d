"""``process_poll``: what a process wrote since the last time."""

from typing import Annotated

import re2
from pydantic import Field, StringConstraints

from longstride.tools.process_report import refused, report
from longstride.tools.process_start import Name
from longstride.tools.task_processes import KEPT_NOWHERE
from longstride.tools.tool import Arguments, Bench, Tool, ToolResult


class ProcessPollArguments(Arguments):
    """Arguments of ``process_poll``."""

    name: Name
    """Which process."""
    wait_s: Annotated[float, Field(ge=0, le=3600)] = 0.0
    """Seconds to wait at the most for output, or for the process to end."""
    pattern: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = None
    """Wait until the new output contains this regular expression (RE2)."""
    until_end: bool = False
    """Wait for the end of the process, whatever it writes."""


class ProcessPoll(Tool[ProcessPollArguments]):
    """Waits where asked to, within the limits of a call."""

    name = "process_poll"
    description = "Read what a process wrote since you last looked, and whether it runs or how it ended; wait for that if you like."
    arguments = ProcessPollArguments
    offered = False
    kept = True

    def run(self, arguments: ProcessPollArguments, bench: Bench) -> ToolResult:
        """Wait, then read."""
        if bench.processes is None:
            return refused(KEPT_NOWHERE)
        try:
            expected = re2.compile((arguments.pattern or "").encode())
        except re2.error as error:
            return refused(f"pattern is no regular expression (RE2): {error}")
        _ = bench.workspace  # What the process wrote is part of this step, and where it lives is the task's directory.
        process = bench.processes.household.get(arguments.name)
        if process is None:
            return refused(bench.processes.unknown(arguments.name))

        def found(new: bytes) -> bool:
            return not arguments.until_end and bool(new) and expected.search(new) is not None

        wait_s = min(arguments.wait_s, bench.limits.wall_s)
        process.wait(wait_s, bench.cancelled, found)
        heard = process.poll(bench.processes.step)
        waits_for = arguments.pattern and not arguments.until_end
        missing = process.running and waits_for and expected.search(heard.output) is None
        return report(bench, process, heard, note=f"; pattern not found in {wait_s:g} s" if missing else "")
