"""Running a terminal task without an agent, in real sandboxes on this machine: the gate for one's own tasks."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from longstride.client.errors import ClientError, UsageProblem
from longstride.client.input_files import InputFiles
from longstride.client.terminal.task import SOLUTION, TerminalTask
from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.envelope import MessageError, seal
from longstride.contracts.v1.action import Action, CheckResult
from longstride.contracts.v1.commands import ExecuteAction, SubmitTask
from longstride.sandbox.base import SUPPORT, Command, Execution, SandboxBackend
from longstride.sandbox.bubblewrap import BubblewrapSandbox
from longstride.sandbox.errors import SandboxError
from longstride.sandbox.workspace import Workspaces
from longstride.storage.memory import MemoryArtifacts
from longstride.tools.executor import Executor
from longstride.tools.observation import printable
from longstride.tools.registry import builtin_tools

SESSION = "rehearsal"


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """How one run without an agent ended."""

    result: CheckResult
    output: str = ""
    """The oracle's own, when it failed."""

    @property
    def reward(self) -> float:
        """What an agent that did the same would get."""
        return self.result.score


class Rehearsal:
    """One task, laid out as it would be published."""

    def __init__(self, task: TerminalTask, backend: SandboxBackend) -> None:
        """
        Raises:
            UsageProblem: it cannot be published, or a RUN step of its environment fails.
        """
        self._task, self._backend = task, backend
        self._artifacts = MemoryArtifacts()
        self._workspaces = Workspaces(self._artifacts, backend.volumes)
        self._executor = Executor(backend, self._workspaces, self._artifacts, builtin_tools())
        self._submit = self._submission()

    def oracle(self) -> Rehearsed:
        """The folder's own solution.

        Raises:
            UsageProblem: it has none.
        """
        if not self._task.solution:
            raise UsageProblem(f"{self._task.folder} has no solution: without one nobody knows that it can be done")
        workspace, execution = self._solve()
        failed = f"{printable(execution.stdout + execution.stderr).strip()[-2000:]}\n{_ending(execution)}".strip()
        return Rehearsed(self._judged(workspace), "" if execution.status == "ok" else failed)

    def idle(self) -> Rehearsed:
        """An agent that submits at once."""
        return Rehearsed(self._judged(None))

    def close(self) -> None:
        """Drop the workspaces; the backend stays."""
        self._workspaces.close()

    def _submission(self) -> SubmitTask:
        task, disk_mb = self._task, self._task.fields["sandbox"].get("disk_mb", 256)
        files = InputFiles(self._artifacts, SESSION, disk_mb)
        built = task.built(self._backend, self._artifacts, SESSION)
        self.notes = (*task.notes, *(built.notes if built else ()))
        submit = SubmitTask.model_validate(
            {
                **task.fields,
                "instruction": task.instruction,
                "inputs": files.laid(task.files),
                "workspace": built and built.workspace,
                "checks": (task.check(files.laid(task.hidden)),),
            }
        )
        try:
            seal(submit).encode()
        except MessageError as error:
            count = len(task.files) + len(task.hidden)
            raise UsageProblem(
                f"{count} files are too many for one task: pack some of them into an archive. {error}"
            ) from error
        return submit

    def _solve(self) -> tuple[ArtifactRef, Execution]:
        submit = self._submit
        limits = submit.sandbox.model_copy(update={"wall_s": submit.limits.wall_clock_s})
        with self._workspaces.open("oracle", submit.workspace, submit.inputs, submit.sandbox) as workspace:
            execution = self._backend.run(
                Command(
                    (self._shell, f"{SOLUTION}/{self._task.solve}"),
                    workspace.volume,
                    limits,
                    env={**submit.environment.variables, **self._task.solution_variables},
                    links=submit.environment.links,
                    files={self._support(file.path): file.source.read_bytes() for file in self._task.solution},
                )
            )
            return workspace.commit(SESSION), execution

    @property
    def _shell(self) -> str:
        """What the script's first line names."""
        script = next(file.source for file in self._task.solution if file.path == self._task.solve)
        return "bash" if b"bash" in script.read_bytes().partition(b"\n")[0] else "sh"

    @staticmethod
    def _support(path: str) -> str:
        return f"{SOLUTION.removeprefix(SUPPORT).lstrip('/')}/{path}"

    def _judged(self, workspace: ArtifactRef | None) -> CheckResult:
        submit = self._submit
        command = ExecuteAction(
            step=1,
            action=Action(tool="submit", arguments={"answer": "done"}),
            tools=(),
            workspace=workspace or submit.workspace,
            inputs=submit.inputs if workspace is None else (),
            limits=submit.sandbox,
            isolation=submit.isolation,
            environment=submit.environment,
            checks=submit.checks,
        )
        answer = self._executor.execute(command, task_id="judged", session_id=SESSION)
        if why := answer.error or answer.input_error:
            raise ClientError(f"{self._task.folder}: {why}")
        return answer.checks[0]


@contextmanager
def rehearsals() -> Iterator[SandboxBackend]:
    """A backend for them.

    Raises:
        ClientError: code cannot be isolated here.
    """
    try:
        backend = BubblewrapSandbox()
    except SandboxError as error:
        raise ClientError(str(error)) from error
    try:
        yield backend
    except SandboxError as error:
        raise ClientError(str(error)) from error
    finally:
        backend.close()


def _ending(execution: Execution) -> str:
    return f"stopped by {execution.limit}" if execution.limit else f"exit code {execution.exit_code}"
