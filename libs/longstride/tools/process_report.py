"""What an agent is told of a process that lives between its calls."""

from dataclasses import replace

from longstride.contracts.v1.action import ObservationStatus
from longstride.tools.live_process import Heard, LiveProcess
from longstride.tools.observation import printable
from longstride.tools.tool import ToolResult


def report(process: LiveProcess, heard: Heard, *, note: str = "") -> ToolResult:
    """Its new output, then how it does."""
    lines = [f"[{heard.dropped} bytes before this were dropped]\n" if heard.dropped else "", printable(heard.output)]
    text = "".join(lines)
    seam = "" if not text or text.endswith("\n") else "\n"
    result = ToolResult(_status(process), f"{text}{seam}[{process.name} {how(process)}{process.remark}{note}]".encode())
    ended = process.execution
    return replace(result, exit_code=ended.exit_code, limit=ended.limit) if ended else result


def how(process: LiveProcess) -> str:
    """How it does, after its name."""
    if process.failure:
        return f"is gone: {process.failure}. Start it again with process_start"
    if process.execution is None:
        return f"runs for {process.seconds:.0f} s"
    if process.execution.limit:
        return f"was stopped by {process.execution.limit}"
    if process.execution.killed:
        return "was killed"
    return f"ended with exit code {process.execution.exit_code}"


def _status(process: LiveProcess) -> ObservationStatus:
    """Of the call: how the program ended is told beside it, unless something else ended it."""
    if process.failure:
        return "failed"
    return "limit" if process.execution and process.execution.limit else "ok"


def refused(why: str) -> ToolResult:
    """Nothing was done."""
    return ToolResult("failed", why.encode())
