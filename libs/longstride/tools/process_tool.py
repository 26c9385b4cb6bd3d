"""What the tools have in common that deal with a process which ``process_start`` started."""

from abc import abstractmethod
from typing import Annotated, TypeVar

from pydantic import StringConstraints

from longstride.tools.live_process import LiveProcess
from longstride.tools.process_report import refused
from longstride.tools.task_processes import KEPT_NOWHERE
from longstride.tools.tool import Arguments, Bench, Tool, ToolResult

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,31}$")]


class ProcessArguments(Arguments):
    """Base of their arguments."""

    name: Name
    """Which process."""


P = TypeVar("P", bound=ProcessArguments)


class ProcessTool(Tool[P]):
    """Finds the process; subclasses deal with it in ``ask``."""

    offered = False
    kept = True

    def run(self, arguments: P, bench: Bench) -> ToolResult:
        """A process that is not here is told of, with those that are."""
        if bench.processes is None:
            return refused(KEPT_NOWHERE)
        _ = bench.workspace  # What the process wrote is part of this step, and where it lives is the task's directory.
        process = bench.processes.household.get(arguments.name)
        if process is None:
            return refused(bench.processes.unknown(arguments.name))
        return self.ask(process, arguments, bench, bench.processes.step)

    @abstractmethod
    def ask(self, process: LiveProcess, arguments: P, bench: Bench, step: int) -> ToolResult:
        """Deal with it. ``step``: of this call; one that is made again is answered the same."""
