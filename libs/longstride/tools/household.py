"""The programs that run on between the calls of tasks: a household is one task's.

They live in this process, and see one directory: the task's workspace as the last step left it. Where that directory is
given up (the call was stopped, or another executor went on with the task), they are ended, because what they would see and
do from then on is no part of the task.
"""

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from longstride.contracts.v1.action import Usage
from longstride.contracts.v1.egress import Connection
from longstride.sandbox.base import Sandbox, SandboxBackend, Volume
from longstride.sandbox.errors import SandboxFailed
from longstride.sandbox.workspace import Workspace, Workspaces
from longstride.tools.live_process import LiveProcess

logger = logging.getLogger(__name__)

MOST_ENDED = 16
"""Of a household: older ones cannot be asked any more, once all that they used is told."""
LINGER_S = 300.0
"""For the task's next call to commit what a process wrote before its end."""
LET_GO = "; what it wrote after the last step before its end was not kept, because the next one came too late"


class Crowded(ValueError):
    """No further process; the text says which bound is reached."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of processes that live between calls; what else they may use is as for a call."""

    wall_s: float = 3600.0
    """Seconds that one may live."""
    cpu_s: float = 600.0
    """CPU seconds of one."""
    of_a_task: int = 4
    """Running at once."""
    of_all: int = 32
    """Running at once in this process."""


class Household:
    """One task's. Its calls come one at a time; it may be ended from any thread."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces
        self._processes: dict[str, LiveProcess] = {}
        self._replaced: list[LiveProcess] = []
        """Ended ones whose name another has now, until all that they used is told."""
        self._volume: Volume | None = None
        self._guard = threading.Lock()

    @property
    def running(self) -> list[LiveProcess]:
        """In the order of their start."""
        with self._guard:
            return [process for process in self._processes.values() if process.running]

    @property
    def names(self) -> list[str]:
        """Those that can be asked, ended ones included."""
        return list(self._processes)

    @property
    def idle(self) -> bool:
        """Whether nothing is known here."""
        return not self._processes

    @property
    def network(self) -> Sandbox | None:
        """A sandbox that lives: the task's other calls share its network."""
        return next((sandbox for process in self.running if (sandbox := process.sandbox)), None)

    def get(self, name: str) -> LiveProcess | None:
        """One of them."""
        return self._processes.get(name)

    def add(self, process: LiveProcess, backend: SandboxBackend, workspace: Workspace) -> None:
        """Start it; an ended one of its name cannot be asked any more."""
        with self._guard:
            if before := self._processes.pop(process.name, None):
                self._replaced.append(before)
            self._processes[process.name] = process
            self._volume = workspace.volume
            self._workspaces.pin(workspace.volume, self.lose)
        process.start(backend)

    def settle_in(self, workspace: Workspace) -> None:
        """The directory of this call: whoever lives in another one has no part in the task any more."""
        if self._volume not in (None, workspace.volume):
            self.lose("the task went on in another directory")

    def account(self, step: int) -> tuple[Usage, tuple[Connection, ...]]:
        """What those used that have ended and were not accounted in an earlier step; a step that is made again is told again."""
        with self._guard:
            self._replaced = [process for process in self._replaced if not process.accounted_before(step)]
            told = [name for name, process in self._processes.items() if process.accounted_before(step)]
            for name in told[:-MOST_ENDED]:
                del self._processes[name]
            known = [*self._replaced, *self._processes.values()]
        return _summed(process.account(step) for process in known)

    def unaccounted(self) -> tuple[Usage, tuple[Connection, ...]]:
        """What those used that no step was told."""
        with self._guard:
            known = [*self._replaced, *self._processes.values()]
        return _summed(process.unaccounted() for process in known)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Nobody writes meanwhile: who cannot be paused is ended, for code can see to it that it cannot.

        Raises:
            SandboxFailed: one runs, and can be neither paused nor ended.
        """
        with ExitStack() as paused:
            for process in self.running:
                if _stands_still(process):
                    paused.callback(process.resume)
            yield

    def committed(self) -> None:
        """All that was written until now is in a snapshot; where nobody lives any more, the directory is one like others.

        Call it while all are paused.
        """
        if self._volume and not self.running:
            self._workspaces.unpin(self._volume)
            self._volume = None

    def let_go(self, now: float) -> bool:
        """Unpin the directory where nothing has run in it for a while, and no commit came; whether it was pinned until now."""
        with self._guard:
            known = list(self._processes.values())
            if self._volume is None or any(now - (process.ended_at or now) < LINGER_S for process in known):
                return False
            self._workspaces.unpin(self._volume)
            self._volume = None
        return True

    def note(self, remark: str) -> None:
        """Of all that have ended by now."""
        with self._guard:
            for process in self._processes.values():
                process.remark = process.remark or remark

    def lose(self, why: str) -> None:
        """End all that run; each says so when it is asked for."""
        with self._guard:
            volume, self._volume = self._volume, None
            processes = list(self._processes.values())
        for process in processes:
            process.kill(f"it was lost: {why}")
        if volume:
            self._workspaces.unpin(volume)


@dataclass
class Households:
    """All tasks' of this process."""

    workspaces: Workspaces
    bounds: Bounds = Bounds()
    _households: dict[str, Household] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def of(self, task_id: str) -> Household:
        """The task's; a new one is kept only once something lives in it."""
        with self._guard:
            return self._households.get(task_id) or Household(self.workspaces)

    @property
    def tasks(self) -> list[str]:
        """Whose processes are known here."""
        with self._guard:
            return list(self._households)

    @property
    def running(self) -> int:
        """Processes of all."""
        with self._guard:
            return sum(len(household.running) for household in self._households.values())

    def admit(self, task_id: str, household: Household) -> None:
        """Make room for one more.

        Raises:
            Crowded: there is none.
        """
        if len(household.running) >= self.bounds.of_a_task:
            raise Crowded(f"{self.bounds.of_a_task} processes of this task run already: stop one first")
        if self.running >= self.bounds.of_all:
            raise Crowded(f"this executor keeps {self.bounds.of_all} processes already: go on without, or try later")
        with self._guard:
            self._households[task_id] = household

    def end(self, task_id: str) -> None:
        """The task has ended: so do its processes, and its directory goes. What fails can be tried again."""
        with self._guard:
            household = self._households.get(task_id)
        if household:
            household.lose("the task has ended")
            self.workspaces.forget(task_id)
            with self._guard:
                self._households.pop(task_id, None)
            _log_unaccounted(task_id, *household.unaccounted())

    def let_go(self, task_id: str) -> None:
        """Drop the directory of a task that has paused, where nothing has run for a while.

        What was written after its last commit is lost with it; the agent is told where it asks for a process.
        """
        with self._guard:
            household = self._households.get(task_id)
        if household and household.let_go(time.monotonic()) and self.workspaces.forget(task_id):
            household.note(LET_GO)

    def close(self) -> None:
        """The executor ends."""
        for task_id in self.tasks:
            self.end(task_id)


def _summed(
    accounts: Iterable[tuple[Usage, tuple[Connection, ...]]],
) -> tuple[Usage, tuple[Connection, ...]]:
    usage, connections = Usage(), list[Connection]()
    for used, asked_for in accounts:
        usage += used
        connections += asked_for
    return usage, tuple(connections)


def _log_unaccounted(task_id: str, usage: Usage, connections: tuple[Connection, ...]) -> None:
    """No step comes any more that could be told: the log is all the record there is."""
    if connections or usage.cpu_ms:
        logger.warning(
            "task %s: its end ended processes that made %d connections (%d of them refused; %d bytes sent, %d received) and used "
            "%.1f s of CPU, which no step is charged with",
            task_id,
            len(connections),
            sum(connection.verdict == "refused" for connection in connections),
            sum(connection.sent for connection in connections),
            sum(connection.received for connection in connections),
            usage.cpu_ms / 1e3,
        )


def _stands_still(process: LiveProcess) -> bool:
    """``False``: it has ended, by now at the latest."""
    try:
        return process.pause()
    except SandboxFailed as error:
        process.kill(f"it was lost: it could not be paused while the workspace was kept: {error}")
        if not process.gone:
            raise
        return False


def try_pause(process: LiveProcess) -> str | None:
    """Why this host cannot keep it: a process that cannot be paused would write while its workspace is collected."""
    try:
        if process.pause():
            process.resume()
    except SandboxFailed as error:
        process.kill(None)
        return str(error)
    return None
