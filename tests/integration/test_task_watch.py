"""The watch over tasks whose processes are kept, with a database that knows none of them: they have all ended."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.memory import MemorySandbox, Process
from longstride.sandbox.workspace import Workspaces
from longstride.storage.database import Database
from longstride.storage.memory import MemoryArtifacts
from longstride.tools.executor import Executor
from longstride.tools.household import Household, Households
from longstride.tools.registry import builtin_tools
from services.tool_executor.task_watch import TaskWatch
from tests.support.eventually import eventually
from tests.support.living import LivingTask

LIMITS = SandboxLimits(wall_s=5, disk_mb=1, files=50)


def busy(process: Process) -> int:
    process.work(60)
    return 0


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


def test_one_tasks_trouble_ends_neither_the_watch_nor_the_others(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    backend = MemorySandbox(tmp_path, {"sh": busy})
    workspaces = Workspaces(artifacts := MemoryArtifacts(), backend.volumes)
    households = Households(workspaces)
    executor = Executor(backend, workspaces, artifacts, builtin_tools(), households=households)
    for name in ("first", "second"):
        assert LivingTask(executor, LIMITS, name).call("process_start", name="a", command="busy")[0] == "ok"
    [first, second] = [households.of(name) for name in ("first", "second")]
    lose = Household.lose

    def lose_but_the_first(household: Household, why: str) -> None:
        if household is first:
            raise OSError("the host is out of order")
        lose(household, why)

    watch = TaskWatch(households, database, every_s=0.05)
    with monkeypatch.context() as trouble:
        trouble.setattr(Household, "lose", lose_but_the_first)
        watch.start()
        eventually(lambda: not second.running)
        eventually(lambda: "the processes of task first could not be ended" in caplog.text)
    eventually(lambda: households.tasks == [])
    assert not first.running
    assert watch.failure is None
    watch.stop()
    workspaces.close()
