"""What isolation costs: a shell command that does nothing, from a plain process to a whole step of the tool-executor."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.action import Action
from longstride.contracts.v1.commands import ExecuteAction
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.bubblewrap import BubblewrapSandbox
from longstride.sandbox.workspace import Workspaces
from longstride.storage.disk import DiskArtifacts
from longstride.tools.executor import Executor
from longstride.tools.registry import builtin_tools
from tests.benchmarks.bench_footprint import timed
from tests.benchmarks.lap import percentile
from tests.benchmarks.table import Table

ROUNDS = 60
BARE = ("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
NOTHING = ("sh", "-c", ":")
Act = Callable[[], object]


def run() -> Table:
    """Measure, taking turns, and say so in a table."""
    with _executor() as executor:
        acts: Mapping[str, Act] = {
            "a process: sh -c :": lambda: subprocess.run(NOTHING, check=True),
            "bare bwrap, new namespaces, no limits: sh -c :": lambda: subprocess.run((*BARE, *NOTHING), check=True),
            "Executor: noop (no sandbox)": Steps(executor, Action(tool="noop")),
            "Executor: shell ':', workspace unchanged": Steps(executor, _shell(":")),
            "Executor: shell 'date +%N > file', a new snapshot": Steps(executor, _shell("date +%N > file")),
        }
        seconds = _measure(acts)
    bare = percentile(next(own for name, own in seconds.items() if "bwrap" in name), 0.5)
    rows = [
        (
            name,
            f"{1e3 * percentile(own, 0.5):.1f}",
            f"{1e3 * percentile(own, 0.99):.1f}",
            f"{percentile(own, 0.5) / bare:.1f}",
        )
        for name, own in seconds.items()
    ]
    return Table("Sandbox: a command that does nothing", ("what", "p50 ms", "p99 ms", "times bare bwrap"), rows)


def _measure(acts: Mapping[str, Act]) -> dict[str, list[float]]:
    for act in acts.values():
        act()
    seconds: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(ROUNDS):
        for name, act in acts.items():
            seconds[name].append(timed(act))
    return seconds


class Steps:
    """The same action again and again, each time in the workspace that the time before left."""

    def __init__(self, executor: Executor, action: Action) -> None:
        self._executor = executor
        self._action = action
        self._workspace: ArtifactRef | None = None
        self._step = 0

    def __call__(self) -> None:
        """One step."""
        self._step += 1
        command = ExecuteAction(
            step=self._step,
            action=self._action,
            tools=(self._action.tool,),
            workspace=self._workspace,
            limits=SandboxLimits(),
            isolation="process",
        )
        executed = self._executor.execute(command, task_id=f"task-{id(self)}", session_id="bench")
        assert executed.observation is not None, executed.error
        assert executed.observation.status == "ok", executed.observation
        self._workspace = executed.workspace


def _shell(command: str) -> Action:
    return Action(tool="shell", arguments={"command": command})


@contextmanager
def _executor() -> Iterator[Executor]:
    folder, sandbox = Path(tempfile.mkdtemp(prefix="longstride-bench-")), BubblewrapSandbox()
    try:
        artifacts = DiskArtifacts(folder)
        yield Executor(sandbox, Workspaces(artifacts, sandbox.volumes), artifacts, builtin_tools())
    finally:
        sandbox.close()
        shutil.rmtree(folder, ignore_errors=True)
