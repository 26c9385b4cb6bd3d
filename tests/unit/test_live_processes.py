"""Processes that live between the calls of a task, above the in-memory sandbox."""

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.egress import Egress, EgressRule
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import Command
from longstride.sandbox.errors import ExecutionCancelled, NetworkGone, SandboxFailed
from longstride.sandbox.memory import AskedToEnd, MemoryCell, MemorySandbox, Process
from longstride.sandbox.secrets import MemorySecrets
from longstride.sandbox.workspace import Workspaces
from longstride.storage.errors import StorageUnavailable
from longstride.storage.memory import MemoryArtifacts
from longstride.tools import live_process
from longstride.tools.executor import Executor
from longstride.tools.household import LINGER_S, MOST_ENDED, Bounds, Households
from longstride.tools.live_process import LiveProcess
from longstride.tools.lookout import OVERLAP, STRIDE, Lookout
from longstride.tools.output_ring import OutputRing
from longstride.tools.registry import builtin_tools
from longstride.tools.shell import Shell
from longstride.tools.tool import Bench
from tests.support.eventually import eventually
from tests.support.leaks import none_left
from tests.support.living import TOOLS, LivingTask

LIMITS = SandboxLimits(wall_s=5, disk_mb=1, files=50, output_bytes=4096, output_mb=1)


def program(process: Process) -> int:
    """A few commands by name, for ``shell`` and for ``process_start``."""
    line = process.argv[-2] if "cd --" in process.argv[2] else process.argv[-1]
    word, _, rest = line.partition(" ")
    match word:
        case "serve":
            process.print("ready")
            while True:
                path = process.workspace / "page"
                process.network[8000] = path.read_text() if path.exists() else "no page"
                process.work(0.01)
        case "get":
            process.print(process.network.get(8000, "connection refused"))
        case "echo":
            while line_ := process.read_line().decode():
                process.print(f"heard {line_.strip()}")
            process.print("end of input")
            return 3
        case "deaf":
            process.work(60)
        case "stubborn":
            while True:
                try:
                    process.work(60)
                except AskedToEnd:
                    process.print("no")
        case "polite":
            try:
                process.work(60)
            except AskedToEnd:
                process.print("goodbye")
                return 0
        case "write":
            name, _, text = rest.partition(" ")
            (process.workspace / name).write_text(text)
        case "later":
            process.read_line()
            (process.workspace / "later").write_text(rest)
        case "flood":
            for n in range(int(rest)):
                process.print(f"line {n:05d}")
            process.work(60)
        case "endless":
            while True:
                process.print("x" * 1000)
        case "fill":
            (process.workspace / "fill").write_bytes(bytes(2 << 20))
        case "fail":
            return 9
        case "ask_and_go":
            process.connect("api.example.com", int(rest))
        case "ask_and_wait":
            process.connect("api.example.com", int(rest))
            process.work(60)
        case "broken":
            raise SandboxFailed("the host is out of order")
        case "immortal":  # SIGKILL does not reach who waits for a disk
            while not (process.workspace / "over").exists():
                time.sleep(0.005)
        case "hang":
            process.work(60)
        case _:
            raise AssertionError(f"no command {word!r}")
    return 0


@dataclass
class World:
    task: LivingTask
    households: Households
    backend: MemorySandbox
    workspaces: Workspaces
    artifacts: MemoryArtifacts

    def other(self, name: str = "other") -> LivingTask:
        return LivingTask(self.task.executor, LIMITS, name)


def made(tmp_path: Path, bounds: Bounds = Bounds(), max_live: int = 16) -> World:
    backend = MemorySandbox(tmp_path / "v", {"sh": program})
    artifacts = MemoryArtifacts()
    workspaces = Workspaces(artifacts, backend.volumes, max_live=max_live)
    households = Households(workspaces, bounds)
    executor = Executor(backend, workspaces, artifacts, builtin_tools(), households=households)
    return World(LivingTask(executor, LIMITS), households, backend, workspaces, artifacts)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with none_left():
        world = made(tmp_path)
        yield world
        world.households.close()
        world.workspaces.close()


def test_a_server_is_reached_by_the_tasks_other_calls_and_by_nobody_else(world: World) -> None:
    task = world.task
    task.call("write_file", path="page", content="first")
    status, text = task.call("process_start", name="web", command="serve")
    assert status == "ok"
    assert text.startswith("ready\n[web runs for ")
    assert task.call("shell", command="get") == ("ok", "first\n")
    task.call("write_file", path="page", content="second")
    eventually(lambda: task.call("shell", command="get") == ("ok", "second\n"))
    assert world.other().call("shell", command="get") == ("ok", "connection refused\n")
    assert task.call("process_stop", name="web") == ("ok", "ready\n[web ended with exit code 143]")
    assert task.call("shell", command="get") == ("ok", "connection refused\n")


def test_a_conversation(world: World) -> None:
    task = world.task
    task.call("process_start", name="r", command="echo")
    assert task.call("process_send", name="r", text="one")[1].startswith("heard one\n[r runs for")
    assert task.call("process_poll", name="r")[1].startswith("[r runs for")
    task.call("process_send", name="r", text="two\nthree", wait_s=0)
    _, text = task.call("process_poll", name="r", wait_s=5, pattern="thr..")
    assert text.startswith("heard two\nheard three\n")
    assert "not found in 0.02 s" in task.call("process_poll", name="r", wait_s=0.02, pattern="four")[1]
    task.call("process_send", name="r", newline=False, end_of_input=True, wait_s=0)
    task.call("process_poll", name="r", wait_s=5, until_end=True)
    assert task.last is not None
    assert task.last.observation is not None
    assert task.last.observation.exit_code == 3
    told = task.call("process_send", name="r", text="anybody?")
    assert told == ("failed", "nothing was sent to r: it does not run any more")


def test_nothing_is_sent_to_an_input_that_was_closed(world: World) -> None:
    task = world.task
    task.call("process_start", name="d", command="deaf")
    task.call("process_send", name="d", newline=False, end_of_input=True, wait_s=0)
    told = task.call("process_send", name="d", text="anybody?", wait_s=0)
    assert told == ("failed", "nothing was sent to d: its input was closed before")


def test_the_time_of_a_call_that_waits_is_the_tasks(world: World) -> None:
    task = world.task
    task.call("process_start", name="d", command="deaf")
    task.call("process_poll", name="d", wait_s=0.3)
    assert task.last is not None
    assert task.last.usage.wall_ms >= 300


def test_a_step_that_is_made_again_is_answered_the_same_and_sends_nothing_twice(world: World) -> None:
    task = world.task
    started = task.call("process_start", name="r", command="echo")
    assert (
        started[1].split(" for ")[0]
        == task.call("process_start", again=True, name="r", command="echo")[1].split(" for ")[0]
    )
    for again in (False, True):
        _, text = task.call("process_send", again=again, name="r", text="one")
        assert text.startswith("heard one\n[")
    _, text = task.call("process_send", name="r", text="two")
    assert text.startswith("heard two\n[")
    for again in (False, True):
        assert task.call("process_stop", again=again, name="r") == ("ok", "end of input\n[r ended with exit code 3]")


def test_stopping_asks_before_it_kills(world: World) -> None:
    task = world.task
    task.call("process_start", name="a", command="polite")
    assert task.call("process_stop", name="a") == ("ok", "goodbye\n[a ended with exit code 0]")
    task.call("process_start", name="b", command="stubborn")
    assert task.call("process_stop", name="b", grace_s=0.2) == ("ok", "no\n[b was killed]")


def test_what_it_writes_between_two_steps_is_part_of_the_next(world: World) -> None:
    task = world.task
    task.call("process_start", name="w", command="later made")
    before = task.workspace
    assert task.call("process_send", name="w", text="go", wait_s=5)[0] == "ok"
    eventually(lambda: "ended" in task.call("process_poll", name="w")[1])
    assert task.workspace != before
    task.executor._workspaces.forget("task")
    assert task.call("read_file", path="later")[1].endswith("made")


def test_a_workspace_that_somebody_lives_in_is_not_dropped_to_make_room(tmp_path: Path) -> None:
    world = made(tmp_path, max_live=1)
    world.task.call("process_start", name="web", command="serve")
    for n in range(3):
        world.other(f"t{n}").call("shell", command=f"write a {n}")
    assert world.task.call("process_poll", name="web")[1].startswith("ready\n[web runs")
    world.task.call("process_stop", name="web")
    world.other().call("shell", command="write a b")
    assert len(world.workspaces._live) == 1
    world.households.close()
    world.workspaces.close()


@pytest.mark.parametrize("tool", ["shell", "process_poll"])
def test_a_stopped_call_takes_the_processes_along_and_the_next_is_told(world: World, tool: str) -> None:
    task, cancelled = world.task, threading.Event()
    task.call("process_start", name="web", command="serve")
    threading.Timer(0.2, cancelled.set).start()
    arguments = {"command": "hang"} if tool == "shell" else {"name": "web", "wait_s": 5, "until_end": True}
    with pytest.raises(ExecutionCancelled):
        task.call(tool, cancelled=cancelled, **arguments)
    assert task.call("process_poll", again=True, name="web") == (
        "failed",
        "ready\n[web is gone: it was lost: the call was stopped. Start it again with process_start]",
    )
    assert task.call("process_start", name="web", command="serve")[0] == "ok"


def test_a_step_made_again_after_it_changed_the_files_finds_them_lost(world: World) -> None:
    task = world.task
    task.call("process_start", name="web", command="serve")
    task.call("shell", command="write a b")
    assert task.call("shell", again=True, command="get") == ("ok", "connection refused\n")
    _, text = task.call("process_poll", name="web")
    assert "it was lost: a call was made again, or another executor went on with the task" in text


def test_a_workspace_that_cannot_be_kept_takes_them_along(world: World) -> None:
    task = world.task
    task.call("process_start", name="web", command="serve")
    assert task.call("shell", command="fill")[0] == "limit"
    assert "it was lost: the workspace could not be kept" in task.call("process_poll", name="web")[1]


def test_output_is_bounded_and_says_what_is_missing(world: World) -> None:
    task = world.task
    _, text = task.call("process_start", name="f", command="flood 2000")
    # 2000 lines of 11 bytes; the 4096 that are kept are 372 of them and 4 bytes.
    assert text.startswith("[17904 bytes before this were dropped]\n627\nline 01628\n")
    assert "\nline 01999\n[f runs for " in text


def test_limits_of_its_own_end_it(tmp_path: Path) -> None:
    world = made(tmp_path, Bounds(wall_s=0.3))
    world.task.call("process_start", name="d", command="deaf")
    assert world.task.call("process_poll", name="d", wait_s=5) == ("limit", "[d was stopped by wall_s=0.3]")
    world.task.call("process_start", name="e", command="endless")
    world.task.call("process_poll", name="e", wait_s=5, until_end=True)
    world.households.close()
    world.workspaces.close()


def test_a_task_has_a_few_and_an_executor_a_few_more(tmp_path: Path) -> None:
    world = made(tmp_path, Bounds(of_a_task=1, of_all=2))
    assert world.task.call("process_start", name="a", command="deaf")[0] == "ok"
    assert "1 processes of this task run already" in world.task.call("process_start", name="b", command="deaf")[1]
    assert world.other("x").call("process_start", name="a", command="deaf")[0] == "ok"
    assert "keeps 2 processes already" in world.other("y").call("process_start", name="a", command="deaf")[1]
    world.households.end("x")
    assert world.other("y").call("process_start", name="a", command="deaf")[0] == "ok"
    assert world.households.tasks == ["task", "y"]
    world.households.close()
    world.workspaces.close()


def test_names_are_taken_once_and_free_after_the_end(world: World) -> None:
    task = world.task
    task.call("process_start", name="a", command="deaf")
    status, text = task.call("process_start", name="a", command="deaf")
    assert (status, text) == ("failed", "a process named 'a' runs already: stop it first, or choose another name")
    task.call("process_stop", name="a")
    assert task.call("process_start", name="a", command="fail")[1] == "[a ended with exit code 9]"


@pytest.mark.parametrize("tool", ["process_poll", "process_send", "process_stop"])
def test_a_process_that_is_not_here(world: World, tool: str) -> None:
    status, text = world.task.call(tool, name="web")
    assert status == "failed"
    assert text.startswith("there is no process 'web' here; there are: none. If you started it before, it was lost")


def test_a_network_that_is_gone_is_not_missed(world: World) -> None:
    task = world.task
    task.call("process_start", name="web", command="serve")
    process = world.households.of("task").get("web")
    assert process is not None
    gone = process.sandbox
    process.kill(None)
    command = Command(("sh", "-c", "get"), world.backend.volumes.create(LIMITS), LIMITS, network=gone)
    with pytest.raises(NetworkGone):
        world.backend.run(command)
    assert (
        Bench(world.backend, lambda: pytest.fail("unused"), LIMITS).carry_out(command).stdout == b"connection refused\n"
    )


def test_a_sandbox_that_breaks_is_told_of(world: World) -> None:
    status, text = world.task.call("process_start", name="b", command="broken")
    assert status == "failed"
    assert "its sandbox broke: the host is out of order" in text


def test_a_host_that_cannot_pause_keeps_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(_: MemoryCell) -> None:
        raise SandboxFailed("no freezer here")

    monkeypatch.setattr(MemoryCell, "pause", cannot)
    status, text = world.task.call("process_start", name="a", command="deaf")
    assert (status, text) == (
        "failed",
        "a cannot be kept between calls: no freezer here. Start it and use it in one call of shell",
    )
    assert world.households.running == 0


def test_a_backend_whose_sandboxes_work_on_copies_keeps_none(tmp_path: Path) -> None:
    backend = MemorySandbox(tmp_path / "v", {"sh": program}, copies_workspace=True)
    workspaces = Workspaces(artifacts := MemoryArtifacts(), backend.volumes)
    executor = Executor(backend, workspaces, artifacts, builtin_tools(), households=Households(workspaces))
    status, text = LivingTask(executor, LIMITS).call("process_start", name="a", command="deaf")
    assert status == "failed"
    assert text.startswith("no process is kept between calls by the memory backend: its sandboxes work on copies")
    workspaces.close()


def test_who_cannot_be_paused_is_ended_and_the_call_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    task = world.task
    task.call("process_start", name="sly", command="deaf")
    task.call("process_start", name="honest", command="deaf")
    pause = MemoryCell.pause
    sly = world.households.of("task").get("sly")
    assert sly is not None

    def unless_sly(cell: MemoryCell) -> None:
        if cell is sly.sandbox:
            raise SandboxFailed("something does not stop")
        pause(cell)

    monkeypatch.setattr(MemoryCell, "pause", unless_sly)
    assert task.call("shell", command="write a b")[0] == "ok"
    status, text = task.call("process_poll", name="sly")
    assert status == "failed"
    assert "it was lost: it could not be paused while the workspace was kept: something does not stop" in text
    assert "runs for" in task.call("process_poll", name="honest")[1]


def all_but_the_first_cannot_be_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    pause, calls = MemoryCell.pause, iter(range(9))

    def once(cell: MemoryCell) -> None:
        if next(calls):
            raise SandboxFailed("the freezer is stuck")
        pause(cell)

    monkeypatch.setattr(MemoryCell, "pause", once)


def goes_on(process: LiveProcess | None) -> bool:
    """Whether an ``echo`` answers."""
    assert process is not None
    process.send(99, b"hello\n", end=False, cancelled=threading.Event())
    return process.wait(99, 5, threading.Event(), lambda new, start, end: b"heard hello" in new[start:end])


def test_when_one_cannot_be_paused_it_is_lost_and_the_others_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = world.task
    task.call("process_start", name="r", command="echo")
    task.call("process_start", name="d", command="deaf")
    all_but_the_first_cannot_be_paused(monkeypatch)
    household = world.households.of("task")
    with household.still():
        assert [process.name for process in household.running] == ["r"]
    lost = household.get("d")
    assert lost is not None
    assert lost.gone
    assert lost.failure == "it was lost: it could not be paused while the workspace was kept: the freezer is stuck"
    assert goes_on(household.get("r"))


def test_when_one_can_be_neither_paused_nor_ended_nothing_is_kept_and_the_others_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would write into the workspace while that is collected."""
    monkeypatch.setattr(live_process, "END_S", 0.05)
    task = world.task
    task.call("process_start", name="r", command="echo")
    task.call("process_start", name="d", command="immortal")
    household = world.households.of("task")
    everlasting, volume = household.get("d"), household._volume
    assert everlasting is not None
    assert volume is not None
    all_but_the_first_cannot_be_paused(monkeypatch)
    try:
        with pytest.raises(SandboxFailed, match="the freezer is stuck"), household.still():
            raise AssertionError("somebody writes meanwhile")
        assert not everlasting.gone
        assert goes_on(household.get("r"))
    finally:
        (volume.path / "over").touch()
    eventually(lambda: everlasting.gone)


def test_an_executor_that_keeps_none_says_so(world: World) -> None:
    executor = Executor(world.backend, world.workspaces, world.artifacts, builtin_tools())
    status, text = LivingTask(executor, LIMITS).call("process_start", name="a", command="deaf")
    assert status == "failed"
    assert text.startswith("no process is kept running between calls by this executor")


EXPLOSIVE = "(?:(?:a|aa){1,50}){1,20}$b"
"""Half a minute for a mebibyte of ``a``, measured with RE2."""


def test_a_pattern_that_is_too_large_is_refused(world: World) -> None:
    world.task.call("process_start", name="a", command="deaf")
    status, text = world.task.call("process_poll", name="a", pattern=EXPLOSIVE)
    assert status == "failed"
    assert text.startswith("pattern is too large to be searched for while a program writes (")


def test_who_searches_holds_nobody_up(world: World) -> None:
    task = world.task
    task.call("process_start", name="r", command="echo")
    process = world.households.of("task").get("r")
    assert process is not None
    searching, over = threading.Event(), threading.Event()

    def slow(_output: bytes, _start: int, _end: int) -> bool:
        searching.set()
        return over.wait(10)

    waiting = threading.Thread(target=process.wait, args=(9, 10, threading.Event(), slow))
    process.heard("stdout", b"a")
    waiting.start()
    assert searching.wait(5)
    process.heard("stdout", b"b")
    process.kill(None)
    assert not process.running
    over.set()
    waiting.join()


def test_a_lookout_sees_each_byte_once_and_what_crosses_two_pieces() -> None:
    ring, looks = OutputRing(1 << 20), []

    def found(output: bytes, start: int, end: int) -> bool:
        looks.append((start, end))
        return b"needle" in output[start:end]

    lookout = Lookout(ring, 2, found, 5, threading.Event())
    assert not lookout.look()
    ring.write(b"xx" + bytes(STRIDE - 3) + b"need")
    assert not lookout.look()
    assert not lookout.look()
    ring.write(b"le")
    assert lookout.look()
    assert looks == [(0, STRIDE), (STRIDE - OVERLAP, STRIDE + 1), (STRIDE + 1 - OVERLAP, STRIDE + 3)]


def test_a_lookout_that_is_stopped_begins_no_further_piece() -> None:
    ring, stopped, looks = OutputRing(1 << 20), threading.Event(), []

    def found(_output: bytes, start: int, _end: int) -> bool:
        looks.append(start)
        stopped.set()
        return False

    ring.write(bytes(5 * STRIDE))
    assert not Lookout(ring, 0, found, None, stopped).look()
    assert looks == [0]


def test_a_poll_that_is_made_again_finds_what_it_found(world: World) -> None:
    task = world.task
    task.call("process_start", name="r", command="echo")
    task.call("process_send", name="r", text="one", wait_s=0)
    for again in (False, True):
        _, text = task.call("process_poll", again=again, name="r", wait_s=5, pattern="^heard one")
        assert text.startswith("heard one\n[r runs for")
        assert "not found" not in text


def ports(task: LivingTask) -> list[int]:
    """Of the connections that the last step tells."""
    assert task.last is not None
    return [connection.port for connection in task.last.traffic.connections] if task.last.traffic else []


def test_connections_of_a_process_are_told_by_the_next_step_whatever_it_is(world: World) -> None:
    task = world.task
    task.egress = Egress(rules=(EgressRule(host="api.example.com"),))
    task.call("process_start", name="web", command="ask_and_wait 1")
    process = world.households.of("task").get("web")
    assert process is not None
    process.kill("it was lost: the host said so")
    task.call("shell", command="get")
    assert ports(task) == [1]
    task.call("process_poll", name="web")
    assert ports(task) == []


def test_a_process_whose_name_is_taken_by_another_is_accounted(world: World) -> None:
    task = world.task
    task.egress = Egress(rules=(EgressRule(host="api.example.com"),))
    task.call("process_start", name="a", command="ask_and_wait 1")
    process = world.households.of("task").get("a")
    assert process is not None
    process.kill(None)
    task.call("process_start", name="a", command="ask_and_wait 2")
    assert ports(task) == [1]


def test_a_step_that_is_made_again_tells_the_same_connections(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    task = world.task
    task.egress = Egress(rules=(EgressRule(host="api.example.com"),))
    task.call("process_start", name="a", command="ask_and_wait 1")
    process = world.households.of("task").get("a")
    assert process is not None
    process.kill(None)

    def full(*_: object, **__: object) -> ArtifactRef:
        raise StorageUnavailable("the store is away")

    with monkeypatch.context() as away:
        away.setattr(MemoryArtifacts, "put", full)
        with pytest.raises(StorageUnavailable):
            task.call("shell", command="write b c")
    task.call("shell", again=True, command="write b c")
    assert ports(task) == [1]
    task.call("process_poll", name="a")
    assert ports(task) == []


def test_what_the_tasks_end_ends_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    task = world.task
    task.egress = Egress(rules=(EgressRule(host="api.example.com"),))
    task.call("process_start", name="a", command="ask_and_wait 1")
    world.households.end("task")
    assert "task task: its end ended processes that made 1 connections (1 of them refused; " in caplog.text


def test_ended_ones_are_forgotten_once_they_are_accounted(world: World) -> None:
    for n in range(MOST_ENDED + 3):
        world.task.call("process_start", name=f"p{n}", command="fail")
    world.task.call("shell", command="get")
    assert world.households.of("task").names == [f"p{n}" for n in range(3, MOST_ENDED + 3)]


def test_an_ended_one_holds_no_sandbox(world: World) -> None:
    world.task.call("process_start", name="a", command="deaf")
    process = world.households.of("task").get("a")
    assert process is not None
    cell = weakref.ref(process.sandbox)
    process.kill(None)
    gc.collect()
    assert cell() is None


def test_a_paused_task_holds_no_directory_for_processes_that_ended(world: World) -> None:
    task, household = world.task, world.households
    task.call("process_start", name="w", command="later made")
    process = household.of("task").get("w")
    assert process is not None
    process.send(2, b"go\n", end=False, cancelled=threading.Event())
    eventually(lambda: not process.running)
    assert process.ended_at is not None
    assert not household.of("task").let_go(process.ended_at + LINGER_S - 1), (
        "the next call may still commit what it wrote"
    )
    process.ended_at -= LINGER_S + 1
    household.let_go("task")
    assert world.workspaces._pinned == {}
    assert world.workspaces._live == {}
    assert world.task.call("read_file", path="later")[0] == "failed"
    assert "was not kept, because the next one came too late]" in world.task.call("process_poll", name="w")[1]


def test_a_directory_that_somebody_lives_in_is_not_given_up(world: World) -> None:
    world.task.call("process_start", name="web", command="serve")
    assert not world.households.of("task").let_go(time.monotonic() + 9 * LINGER_S)
    world.households.let_go("task")
    assert world.task.call("process_poll", name="web")[1].startswith("ready\n[web runs")


def test_one_that_has_not_begun_can_be_ended(world: World) -> None:
    command = Command(("sh", "-c", "hang"), world.backend.volumes.create(LIMITS), LIMITS)
    process = LiveProcess("a", command, 1, threading.Event())
    process.kill("it was lost: the task has ended")
    assert not process.running
    process.start(world.backend)
    eventually(lambda: process.execution is not None)


def test_what_it_used_is_known_although_its_sandbox_cannot_be_cleared(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stuck(_: MemoryCell) -> None:
        raise SandboxFailed("the host is out of order")

    monkeypatch.setattr(MemoryCell, "destroy", stuck)
    task = world.task
    task.egress = Egress(rules=(EgressRule(host="api.example.com"),))
    task.call("process_start", name="a", command="ask_and_wait 1")
    process = world.households.of("task").get("a")
    assert process is not None
    process.kill(None)
    monkeypatch.undo()
    assert "its sandbox broke: the host is out of order" in task.call("process_poll", name="a")[1]
    assert ports(task) == [1]


def test_a_pattern_that_is_none(world: World) -> None:
    world.task.call("process_start", name="a", command="echo")
    assert "no regular expression" in world.task.call("process_poll", name="a", pattern="(")[1]


def test_a_ring_keeps_the_end_and_counts_the_rest() -> None:
    ring = OutputRing(4)
    assert ring.since(0) == (b"", 0)
    for data in (b"ab", b"cd", b"e", b"fghij"):
        ring.write(data)
    assert ring.end == 10
    assert ring.since(0) == (b"ghij", 6)
    assert ring.since(8) == (b"ij", 0)
    assert ring.since(10) == (b"", 0)


def test_a_file_with_a_secret_is_handed_in_by_nobody(tmp_path: Path) -> None:
    """While a process lives, the directory stays in use with what no snapshot keeps."""
    value = b"t0p-secret-token"
    world = made(tmp_path)
    secrets = MemorySecrets({("default", "token"): value})
    executor = Executor(
        world.backend, world.workspaces, world.artifacts, builtin_tools(), secrets, households=world.households
    )
    task = LivingTask(executor, LIMITS, tools=(*TOOLS, "artifact_put"), secrets=("token",))
    task.call("process_start", name="deaf", command="deaf")
    task.call("shell", command=f"write log {value.decode()}")
    assert task.call("artifact_put", path="log") == ("failed", "log is not kept: it holds secret token")
    task.call("shell", command=f"write {value.decode()} harmless")
    assert task.call("artifact_put", path=value.decode())[1] == "[secret token] is not kept: it holds secret token"
    status, text = task.call("submit", answer="x", artifacts=["log"])
    assert (status, text) == ("invalid", "not submitted: artifact log is not kept: it holds secret token")
    assert [key for key, (data, _) in world.artifacts._objects.items() if value in data] == []
    world.households.close()
    world.workspaces.close()


def test_a_host_named_by_a_secret_is_in_no_record(tmp_path: Path) -> None:
    world = made(tmp_path)
    secrets = MemorySecrets({("default", "token"): b"api.example"})
    executor = Executor(
        world.backend, world.workspaces, world.artifacts, builtin_tools(), secrets, households=world.households
    )
    egress = Egress(rules=(EgressRule(host="other.example.com"),))
    task = LivingTask(executor, LIMITS, secrets=("token",), egress=egress)
    _, text = task.call("shell", command="ask_and_go 443")
    assert task.last is not None
    assert task.last.traffic is not None
    assert "[secret token].com" in text
    assert "api.example" not in task.last.model_dump_json()
    assert [connection.host for connection in task.last.traffic.connections] == ["[secret token].com"]
    world.workspaces.close()


class Keeper(Shell):
    """A tool with a secret of its own, as those of MCP servers have them."""

    name = "keeper"
    secrets = ("token",)


@pytest.mark.parametrize("known", [(), ("token",)])
def test_a_tools_own_secret_in_a_file_is_in_no_later_snapshot(tmp_path: Path, known: tuple[str, ...]) -> None:
    value = b"t0p-secret-token"
    world = made(tmp_path)
    registry = builtin_tools().extended([Keeper()])
    secrets = MemorySecrets({("default", "token"): value})
    executor = Executor(
        world.backend, world.workspaces, world.artifacts, registry, secrets, households=world.households
    )
    task = LivingTask(executor, LIMITS, tools=(*TOOLS, "keeper"), secrets=known)
    task.call("process_start", name="deaf", command="deaf")
    status, text = task.call("keeper", command=f"write log {value.decode()}")
    assert (status, "[not kept in the workspace: log (holds secret token)]" in text) == ("ok", True)
    task.call("shell", command="write other x")
    with Workspaces(world.artifacts, world.backend.volumes).open("reader", task.workspace, limits=LIMITS) as kept:
        assert sorted(path.name for path in kept.volume.path.iterdir()) == ["other"]
    status, text = task.call("process_poll", name="deaf")
    assert ("it was lost: a file in the workspace held secret token" in text) is (known == ())
    world.households.close()
    world.workspaces.close()
