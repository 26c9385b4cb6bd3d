"""``process_send``: text to a process's standard input."""

from typing import Annotated

from pydantic import Field, StringConstraints

from longstride.tools.live_process import MOST_WAITING, Heard, InputClosed, InputFull
from longstride.tools.process_report import refused, report
from longstride.tools.process_start import FIRST_S, Name
from longstride.tools.task_processes import KEPT_NOWHERE
from longstride.tools.tool import Arguments, Bench, Tool, ToolResult


class ProcessSendArguments(Arguments):
    """Arguments of ``process_send``."""

    name: Name
    """Which process."""
    text: Annotated[str, StringConstraints(max_length=262_144)] = ""
    """What to write."""
    newline: bool = True
    """End the text with a newline."""
    end_of_input: bool = False
    """Close the input afterwards: nothing more can be sent."""
    wait_s: Annotated[float, Field(ge=0, le=3600)] = FIRST_S
    """Seconds to wait for its answer; 0: the answer is left for process_poll."""


class ProcessSend(Tool[ProcessSendArguments]):
    """Writes, waits a moment, and reads."""

    name = "process_send"
    description = "Write to the standard input of a process, and read what it answers."
    arguments = ProcessSendArguments
    offered = False
    kept = True

    def run(self, arguments: ProcessSendArguments, bench: Bench) -> ToolResult:
        """A process that ended is told nothing, and says so."""
        if bench.processes is None:
            return refused(KEPT_NOWHERE)
        _ = bench.workspace
        process = bench.processes.household.get(arguments.name)
        if process is None:
            return refused(bench.processes.unknown(arguments.name))
        step = bench.processes.step
        try:
            taken = process.send(step, _bytes(arguments), end=arguments.end_of_input, cancelled=bench.cancelled)
        except InputClosed as error:
            return refused(f"nothing was sent to {arguments.name}: {error}")
        except InputFull:
            return refused(
                f"{arguments.name} does not read: {MOST_WAITING} bytes wait for it already; nothing was sent"
            )
        note = "" if taken or not process.running else "; it has not read all of what was sent yet"
        if not arguments.wait_s:
            return report(process, Heard(b"", 0), note=note)
        process.wait(step, min(arguments.wait_s, bench.limits.wall_s), bench.cancelled)
        process.settle(bench.cancelled)
        return report(process, process.poll(step), note=note)


def _bytes(arguments: ProcessSendArguments) -> bytes:
    """Nothing at all when only the input is to end."""
    ends = arguments.newline and (arguments.text or not arguments.end_of_input)
    return arguments.text.encode() + (b"\n" if ends else b"")
