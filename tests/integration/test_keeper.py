"""The process that keeps tasks' processes running for a service whose other processes come and go."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox import cgroup
from longstride.sandbox.errors import ExecutionCancelled, SandboxFailed
from longstride.sandbox.mounts import mounts_below
from longstride.tools.keeper import Door
from longstride.tools.keeper_link import KeeperLink
from tests.support.eventually import eventually
from tests.support.living import LivingTask
from tests.support.sandboxes import SMALL
from tests.support.serving import serving_processes

LIMITS: SandboxLimits = SMALL.model_copy(update={"disk_mb": 16})


@dataclass
class Service:
    """A stand-in for the service, and ways to its keeper."""

    process: "subprocess.Popen[bytes]"
    folder: Path
    idle_s: float = 60.0

    def link(self) -> KeeperLink:
        """As each of its processes has one."""
        door = Door(self.folder / "door", self.process.pid)
        folders = [str(self.folder / name) for name in ("artifacts", "scratch")]
        arguments = [str(door.folder), str(self.process.pid), *folders, str(self.idle_s)]
        return KeeperLink(door, [sys.executable, "-m", "tests.support.keeper_process", *arguments])

    def task(self, name: str = "task") -> LivingTask:
        return LivingTask(self.link(), LIMITS, name)

    def keepers(self) -> list[int]:
        """Their pids."""
        found = []
        for path in Path("/proc").iterdir():
            if path.name.isdigit() and str(self.folder / "door").encode() in cmdline(path).split(b"\0"):
                found.append(int(path.name))
        return found

    def left_on_the_host(self) -> list[str]:
        """What keepers made for their sandboxes: folders, control groups, mounts."""
        scratch = self.folder / "scratch"
        names = [path.name for path in scratch.iterdir()] if scratch.exists() else []
        hierarchies = (*cgroup.discover(), *cgroup.mounted())
        groups = {path for h in hierarchies for name in names for path in h.base.glob(f"{name}-*")}
        return [*names, *map(str, groups), *map(str, mounts_below(scratch))]

    @property
    def keeper(self) -> int:
        [pid] = self.keepers()
        return pid


def cmdline(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def running(command: bytes) -> list[str]:
    return [path.name for path in Path("/proc").iterdir() if path.name.isdigit() and cmdline(path) == command]


def killed_during(keeper: int, sleep: str) -> None:
    """Once a sandbox sleeps."""
    eventually(lambda: running(f"sleep\0{sleep}\0".encode()))
    os.kill(keeper, signal.SIGKILL)


@pytest.fixture
def service() -> Iterator[Service]:
    # Other ids must be able to enter the folder of the workspaces.
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen(["sleep", "600"]) as process:
        Path(folder).chmod(0o755)
        made = Service(process, Path(folder))
        yield made
        process.kill()
        eventually(lambda: made.keepers() == [])
        assert list((made.folder / "door").glob("*.sock")) == []
        eventually(lambda: made.left_on_the_host() == [])


def serve(task: LivingTask, port: int) -> None:
    server = f"exec python3 -u -m http.server {port} --bind 127.0.0.1"
    status, text = task.call("process_start", name="web", command=server)
    assert status == "ok", text


def test_calls_from_many_processes_meet_in_one_that_is_started_once(service: Service) -> None:
    tasks = [service.task(f"task-{n}") for n in range(4)]
    threads = [threading.Thread(target=serve, args=(task, 8500 + n)) for n, task in enumerate(tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(service.keepers()) == 1
    again = service.task("task-2")
    again.workspace, again.step = tasks[2].workspace, tasks[2].step
    assert "Serving HTTP" in again.call("process_poll", name="web", wait_s=10, pattern="Serving")[1]


def test_a_killed_keeper_takes_all_along_and_the_next_call_is_told(service: Service) -> None:
    task = service.task()
    serve(task, 8511)
    killer = threading.Thread(target=killed_during, args=(service.keeper, "85.11"))
    killer.start()
    with pytest.raises(SandboxFailed, match="ended during the call"):
        task.call("shell", command="exec sleep 85.11")
    killer.join()
    eventually(lambda: serving_processes(8511) == [])
    eventually(lambda: service.left_on_the_host() == [])
    status, text = task.call("process_poll", again=True, name="web")
    assert status == "failed"
    assert "it was lost: the executor that kept it ended" in text
    serve(task, 8511)


def test_a_call_that_is_called_off_ends_there_too(service: Service) -> None:
    task, cancelled = service.task(), threading.Event()
    serve(task, 8512)
    threading.Timer(0.5, cancelled.set).start()
    with pytest.raises(ExecutionCancelled):
        task.call("process_poll", name="web", wait_s=15, until_end=True, cancelled=cancelled)
    assert serving_processes(8512) == []
    assert "it was lost: the call was stopped" in task.call("process_poll", again=True, name="web")[1]


def test_a_killed_child_calls_its_call_off(service: Service) -> None:
    task = service.task()
    serve(task, 8513)
    child = os.fork()
    if child == 0:
        task.call("shell", command="exec sleep 85.13")
        os._exit(0)
    eventually(lambda: running(b"sleep\0" + b"85.13\0"))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    eventually(lambda: not running(b"sleep\0" + b"85.13\0"))
    eventually(lambda: serving_processes(8513) == [])


def test_the_end_of_the_service_ends_everything(service: Service) -> None:
    serve(service.task(), 8514)
    service.process.kill()
    service.process.wait()
    eventually(lambda: service.keepers() == [])
    assert serving_processes(8514) == []
    assert list((service.folder / "door").iterdir()) == []


def test_one_of_no_use_ends_and_is_started_again(service: Service) -> None:
    service.idle_s = 0.5
    task = service.task()
    assert task.call("process_poll", name="web")[0] == "failed"
    first = service.keeper
    eventually(lambda: service.keepers() == [])
    serve(task, 8515)
    assert service.keeper != first
    task.call("process_poll", name="web", wait_s=2, until_end=True)
    assert task.call("process_stop", name="web")[0] == "ok"


def test_a_folder_that_cannot_be_one_is_a_sentence(service: Service) -> None:
    (service.folder / "file").write_text("")
    link = KeeperLink(Door(service.folder / "file", service.process.pid), ["false"])
    with pytest.raises(SandboxFailed, match=r"no socket for tasks' processes in .*: File exists"):
        LivingTask(link, LIMITS).call("process_poll", name="web")
    assert service.task().call("process_poll", name="web")[0] == "failed"


def test_one_that_cannot_start_is_a_sentence(service: Service) -> None:
    door = Door(service.folder / "door", service.process.pid)
    link = KeeperLink(door, ["/bin/sh", "-c", "exit 78"])
    with pytest.raises(SandboxFailed, match=r"did not start .exit code 78.: see its log"):
        LivingTask(link, LIMITS).call("process_poll", name="web")
    assert service.task().call("process_poll", name="web")[0] == "failed"
