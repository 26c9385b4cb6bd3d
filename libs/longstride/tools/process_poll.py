"""``process_poll``: what a process wrote since the last time."""

from typing import Annotated, Any

import re2
from pydantic import Field, StringConstraints

from longstride.tools.live_process import LiveProcess
from longstride.tools.lookout import Found, anything, nothing
from longstride.tools.process_report import refused, report
from longstride.tools.process_tool import ProcessArguments, ProcessTool
from longstride.tools.tool import Bench, ToolResult

MOST_MEMORY = 1 << 20
"""Bytes for a pattern."""
MOST_INSTRUCTIONS = 1000
"""Of a pattern. The worst one of that size takes half a second for a piece of output, and most take no time."""


class BadPattern(ValueError):
    """It is none, or too large; the text says so."""


class ProcessPollArguments(ProcessArguments):
    """Arguments of ``process_poll``."""

    wait_s: Annotated[float, Field(ge=0, le=3600)] = 0.0
    """Seconds to wait at the most for output, or for the process to end."""
    pattern: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = None
    """Wait until the new output contains this regular expression (RE2)."""
    until_end: bool = False
    """Wait for the end of the process, whatever it writes."""


class ProcessPoll(ProcessTool[ProcessPollArguments]):
    """Waits where asked to, within the limits of a call."""

    name = "process_poll"
    description = "Read what a process wrote since you last looked, and whether it runs or how it ended; wait for that if you like."
    arguments = ProcessPollArguments
    example = {"name": "web", "wait_s": 10, "pattern": "Serving"}

    def ask(self, process: LiveProcess, arguments: ProcessPollArguments, bench: Bench, step: int) -> ToolResult:
        """Wait, then read."""
        try:
            found = _expecting(arguments)
        except BadPattern as error:
            return refused(str(error))
        wait_s = min(arguments.wait_s, bench.limits.wall_s)
        seen = process.wait(step, wait_s, bench.cancelled, found)
        heard = process.poll(step)
        missing = process.running and arguments.pattern and not arguments.until_end and not seen
        return report(process, heard, note=f"; pattern not found in {wait_s:g} s" if missing else "")


def _expecting(arguments: ProcessPollArguments) -> Found:
    """What ends the wait.

    Raises:
        BadPattern: nothing could be looked for.
    """
    expected = _compiled(arguments.pattern) if arguments.pattern else None
    if arguments.until_end:
        return nothing
    if expected is None:
        return anything
    return lambda output, start, end: expected.search(output, start, end) is not None


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.max_mem, options.log_errors = MOST_MEMORY, False
    try:
        compiled = re2.compile(pattern.encode(), options)
    except re2.error as error:
        raise BadPattern(f"pattern is no regular expression (RE2) that can be searched for: {_said(error)}") from error
    if compiled.programsize > MOST_INSTRUCTIONS:
        raise BadPattern(
            f"pattern is too large to be searched for while a program writes ({compiled.programsize} instructions of RE2; at the "
            f"most {MOST_INSTRUCTIONS}): repeat less in it"
        )
    return compiled


def _said(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
