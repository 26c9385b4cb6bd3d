"""A task's live processes, as one call of it deals with them."""

from dataclasses import dataclass

from longstride.sandbox.base import Command, SandboxBackend
from longstride.sandbox.workspace import Workspace
from longstride.tools.household import Bounds, Household, Households, try_pause
from longstride.tools.live_process import LiveProcess

KEPT_NOWHERE = (
    "no process is kept running between calls by this executor: start it and use it in one call of shell, or submit the task to "
    "an executor that keeps processes"
)


class NotKept(ValueError):
    """A process cannot live on here; the text says why."""


@dataclass(frozen=True, slots=True)
class TaskProcesses:
    """For one call."""

    households: Households
    household: Household
    task_id: str
    step: int

    @property
    def bounds(self) -> Bounds:
        """What each may use."""
        return self.households.bounds

    def start(self, name: str, command: Command, backend: SandboxBackend, workspace: Workspace) -> LiveProcess:
        """A new one; when this step is made again while the first try's lives, that one.

        Raises:
            Crowded: there are too many.
            NotKept: one of this name runs, or none can be kept on this host.
        """
        known = self.household.get(name)
        if known and known.running:
            if known.step == self.step:
                return known
            raise NotKept(f"a process named {name!r} runs already: stop it first, or choose another name")
        self.households.admit(self.task_id, self.household)
        process = LiveProcess(name, command, self.step)
        self.household.add(process, backend, workspace)
        if why := try_pause(process):
            raise NotKept(f"{name} cannot be kept between calls: {why}. Start it and use it in one call of shell")
        return process

    def unknown(self, name: str) -> str:
        """What to tell of a name that none has."""
        there = ", ".join(self.household.names) or "none"
        return (
            f"there is no process {name!r} here; there are: {there}. If you started it before, it was lost: the executor that "
            "kept it ended, or this call runs on another executor. Start it again with process_start"
        )
