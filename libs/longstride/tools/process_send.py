"""``process_send``: text to a process's standard input."""

from typing import Annotated

from pydantic import Field, StringConstraints

from longstride.tools.live_process import MOST_WAITING, Heard, InputClosed, InputFull, LiveProcess
from longstride.tools.process_report import refused, report
from longstride.tools.process_start import FIRST_S
from longstride.tools.process_tool import ProcessArguments, ProcessTool
from longstride.tools.tool import Bench, ToolResult


class ProcessSendArguments(ProcessArguments):
    """Arguments of ``process_send``."""

    text: Annotated[str, StringConstraints(max_length=262_144)] = ""
    """What to write."""
    newline: bool = True
    """End the text with a newline."""
    end_of_input: bool = False
    """Close the input afterwards: nothing more can be sent."""
    wait_s: Annotated[float, Field(ge=0, le=3600)] = FIRST_S
    """Seconds to wait for its answer; 0: the answer is left for process_poll."""


class ProcessSend(ProcessTool[ProcessSendArguments]):
    """Writes, waits a moment, and reads."""

    name = "process_send"
    description = "Write to the standard input of a process, and read what it answers."
    arguments = ProcessSendArguments
    example = {"name": "repl", "text": "print(6 * 7)"}

    def ask(self, process: LiveProcess, arguments: ProcessSendArguments, bench: Bench, step: int) -> ToolResult:
        """A process that ended is told nothing, and says so."""
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
