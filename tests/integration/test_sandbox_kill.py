"""kill -9 of an executor, at any point of an action: the two ends cannot be told apart, and nothing stays behind."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.action import Action
from longstride.contracts.v1.commands import ExecuteAction
from longstride.contracts.v1.events import ActionExecuted
from longstride.contracts.v1.input_file import InputFile
from longstride.sandbox import backends, cgroup, snapshot
from longstride.sandbox.backends import BackendName
from longstride.sandbox.bubblewrap import BubblewrapSandbox
from longstride.sandbox.docker import LABEL, DockerSandbox
from longstride.sandbox.mounts import mounts_below
from longstride.sandbox.scratch import MARK, Scratch, _marked, reap
from longstride.sandbox.workspace import Workspaces
from longstride.storage.disk import DiskArtifacts
from longstride.tools.executor import Executor
from longstride.tools.registry import builtin_tools
from tests.support import doomed_executor
from tests.support.doomed_executor import POINTS
from tests.support.engine import engine
from tests.support.eventually import eventually
from tests.support.forks import FORKS
from tests.support.sandboxes import SMALL, arena, hosted_backend

WORK = """
import os, time
open('counter', 'a').write('once\\n')
open('half', 'w').write('half')
time.sleep(0.2)
os.remove('half'); os.makedirs('made/deep', exist_ok=True)
open('made/deep/file', 'w').write('done')
for line in open('table.csv'): print(line.strip())
print(open('counter').read() * 2000)
"""


@pytest.fixture(scope="module", autouse=True)
def bubblewrap_works() -> None:
    with arena():
        pass


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other ids can reach."""
    with tempfile.TemporaryDirectory() as path:
        Path(path).chmod(0o755)
        yield Path(path)


def action(code: str, workspace: ArtifactRef | None) -> ExecuteAction:
    inputs = (InputFile(path="table.csv", text="a,b\n1,2\n"), InputFile(path="other.txt", text="x"))
    call = Action(tool="python", arguments={"code": code})
    return ExecuteAction(
        step=2, action=call, tools=(), workspace=workspace, inputs=inputs, limits=SMALL, isolation="process"
    )


def start(
    folder: Path, point: str, command: ExecuteAction, floor: int = 0, backend: BackendName = backends.DEFAULT
) -> ForkServerProcess:
    """A process that imports nothing anew, and is no child of this one."""
    where = [str(folder / "scratch"), str(folder / "artifacts")]
    arguments = [*where, point, command.model_dump_json(), str(floor), backend]
    environment = {name: value for name, value in os.environ.items() if name == "DOCKER_HOST"}
    process = FORKS.Process(target=doomed_executor.main_in, args=(environment, *arguments), daemon=True)
    process.start()
    return process


def killed_at(folder: Path, point: str, command: ExecuteAction, floor: int) -> None:
    process = start(folder, point, command, floor)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL, f"the point {point} was never reached"


def answer(folder: Path, command: ExecuteAction) -> ActionExecuted:
    """By an executor that lives; it has nothing of the dead one's but the artifacts."""
    artifacts = DiskArtifacts(folder / "artifacts")
    backend = BubblewrapSandbox(folder / "scratch")
    workspaces = Workspaces(artifacts, backend.volumes)
    try:
        executor = Executor(backend, workspaces, artifacts, builtin_tools())
        return executor.execute(command, task_id="task", session_id="session")
    finally:
        workspaces.close()
        backend.close()


def told(folder: Path, executed: ActionExecuted) -> tuple[object, ...]:
    """Everything of an answer that is not a time."""
    assert executed.observation is not None
    assert executed.workspace is not None
    held = snapshot.load(DiskArtifacts(folder / "artifacts"), executed.workspace).manifest
    files = {path: (entry.mode, entry.size, entry.sha256) for path, entry in held.files.items()}
    return executed.observation, files, held.links, held.dirs, executed.checks


def left_on_the_host(folder: Path) -> list[str]:
    scratch = folder / "scratch"
    names = [path.name for path in scratch.iterdir()]
    groups = groups_of(*names)
    return [*names, *map(str, groups), *map(str, mounts_below(scratch))]


def groups_of(*names: str) -> set[Path]:
    hierarchies = (*cgroup.discover(), *cgroup.mounted())
    return {path for h in hierarchies for name in names for path in h.base.glob(f"{name}-*")}


@dataclass(frozen=True)
class Undisturbed:
    """What a command does when nobody dies."""

    artifacts: Path
    """As they were before it."""
    command: ExecuteAction
    told: tuple[object, ...]


@pytest.fixture(scope="module")
def undisturbed() -> Iterator[Undisturbed]:
    with tempfile.TemporaryDirectory() as path:
        folder, kept = Path(path, "its"), Path(path, "kept")
        for place in (Path(path), folder):
            place.mkdir(exist_ok=True)
            place.chmod(0o755)
        first = answer(folder, action("open('counter', 'w').write('start\\n')", None))
        shutil.copytree(folder / "artifacts", kept)
        command = action(WORK, first.workspace)
        yield Undisturbed(kept, command, told(folder, answer(folder, command)))


@pytest.mark.parametrize(("point", "floor"), [*((point, 0) for point in POINTS), ("before-run", 2), ("during-run", 2)])
def test_the_two_ends_of_a_kill_are_the_same(folder: Path, undisturbed: Undisturbed, point: str, floor: int) -> None:
    shutil.copytree(undisturbed.artifacts, folder / "artifacts")
    killed_at(folder, point, undisturbed.command, floor)
    again = answer(folder, undisturbed.command)
    assert told(folder, again) == undisturbed.told
    assert "once" in str(again.observation)
    eventually(lambda: left_on_the_host(folder) == [])


def test_the_first_step_starts_from_its_inputs_again(folder: Path) -> None:
    code = "import os; print(sorted(os.listdir())); open('half', 'w'); import time; time.sleep(0.5)"
    command = action(code, None)
    killed_at(folder, "during-run", command, 0)
    observation = answer(folder, command).observation
    assert observation is not None
    assert observation.text == "['other.txt', 'table.csv']\n"


def processes_with(text: str) -> list[int]:
    found = []
    for path in Path("/proc").iterdir():
        try:
            if path.name.isdigit() and text.encode() in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def test_a_sandbox_dies_with_its_executor(folder: Path) -> None:
    mark = f"marked-{os.getpid()}-{time.monotonic_ns()}"
    inside = f"import subprocess; subprocess.run(['sh', '-c', 'setsid sleep 61 & sleep 60; : {mark}'])"
    process = start(folder, "never", action(inside, None))
    eventually(lambda: len([p for p in processes_with(mark) if p != process.pid]) >= 2)
    process.kill()
    process.join()
    eventually(lambda: processes_with(mark) == [])
    eventually(lambda: left_on_the_host(folder) == [])


@pytest.mark.parametrize("backend", ["runc", "runsc"])
def test_a_container_dies_with_its_executor(folder: Path, backend: BackendName) -> None:
    """A runtime does not ask to die with its parent: the executor's warden sees to it."""
    hosted_backend(backend).close()
    inside = "import subprocess; open('here', 'w'); subprocess.run(['sh', '-c', 'setsid sleep 61 & sleep 60'])"
    process = start(folder, "never", action(inside, None), floor=int(backend == "runc"), backend=backend)
    eventually(lambda: list((folder / "scratch").glob("*/volumes/*/here")), timeout_s=30)
    owner = next(path.name for path in (folder / "scratch").iterdir())
    pids = {int(pid) for group in groups_of(owner) for pid in (group / "cgroup.procs").read_text().split()}
    assert len(pids) >= 3
    process.kill()
    process.join()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids) and _marked(owner) == [])
    eventually(lambda: left_on_the_host(folder) == [])


def test_an_engines_container_dies_with_its_executor(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its processes at once, by their mark; what the engine remembers of it, at the next start."""
    inside = "import subprocess; open('here', 'w'); subprocess.run(['sh', '-c', 'setsid sleep 61 & sleep 60'])"
    with engine() as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        process = start(folder, "never", action(inside, None), backend="docker")
        eventually(lambda: list((folder / "scratch").glob("*/volumes/*/here")), timeout_s=30)
        owner = next(path.name for path in (folder / "scratch").iterdir())
        pids = _marked(owner)
        assert len(pids) >= 3
        process.kill()
        process.join()
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
        eventually(lambda: left_on_the_host(folder) == [])
        backend = hosted_backend("docker", folder / "scratch")
        assert isinstance(backend, DockerSandbox)
        assert backend._api.containers(all=True, filters={"label": LABEL}) == []
        backend.close()


def test_what_waits_in_a_pool_dies_with_its_executor(folder: Path) -> None:
    """Processes, control groups, mounts and files of six sandboxes that wait and one that works."""
    mark = f"marked-{os.getpid()}-{time.monotonic_ns()}"
    process = start(folder, "never", action(f"import time; time.sleep(60) # {mark}", None), floor=6)
    eventually(lambda: [p for p in processes_with(mark) if p != process.pid] != [])
    owner = next(path.name for path in (folder / "scratch").iterdir())
    eventually(lambda: len(_marked(owner)) >= 7)
    assert len([g for g in left_on_the_host(folder) if "cgroup" in g]) >= 7
    process.kill()
    process.join()
    eventually(lambda: processes_with(mark) == _marked(owner) == [])
    eventually(lambda: left_on_the_host(folder) == [])


@pytest.mark.parametrize("delay", [0.0, 0.002, 0.004, 0.006, 0.008, 0.012, 0.016, 0.024])
def test_a_sandbox_that_is_being_built_dies_with_its_executor(folder: Path, delay: float) -> None:
    """bwrap asks to die with its parent only once the sandbox is there."""
    mark = f"marked-{os.getpid()}-{time.monotonic_ns()}"
    process = start(folder, "never", action(f"import time; time.sleep(60) # {mark}", None))
    eventually(lambda: [p for p in processes_with(mark) if p != process.pid] != [])
    time.sleep(delay)
    process.kill()
    process.join()
    eventually(lambda: processes_with(mark) == [])
    eventually(lambda: left_on_the_host(folder) == [])


def test_without_control_groups_the_dead_are_known_by_their_mark(folder: Path) -> None:
    scratch = Scratch(folder / "scratch")
    process = subprocess.Popen(["sleep", "60"], env={MARK: scratch.name})
    os.close(scratch._lock)
    assert reap(folder / "scratch") == [scratch.name]
    assert process.wait(timeout=60) == -signal.SIGKILL
    eventually(lambda: left_on_the_host(folder) == [])


def test_one_start_removes_what_many_dead_left(folder: Path) -> None:
    command = action("open('half', 'w'); import time; time.sleep(30)", None)
    doomed = [start(folder, "during-run", command) for _ in range(4)]
    for process in doomed:
        process.join(60)
    assert len(list((folder / "scratch").iterdir())) >= 1
    with arena(folder / "scratch"):
        names = [path.name for path in (folder / "scratch").iterdir()]
        assert len(names) == 1, "its own"
    eventually(lambda: left_on_the_host(folder) == [])
