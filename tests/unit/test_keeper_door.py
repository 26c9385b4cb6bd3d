"""A keeper and the way to it, in one process: what happens when one of them is in trouble."""

import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from longstride.contracts.v1.action import Action
from longstride.contracts.v1.commands import ExecuteAction
from longstride.contracts.v1.events import ActionExecuted
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.errors import ExecutionCancelled, SandboxFailed
from longstride.sandbox.memory import MemorySandbox
from longstride.sandbox.workspace import Workspaces
from longstride.storage.memory import MemoryArtifacts
from longstride.tools import keeper_link
from longstride.tools.household import Households
from longstride.tools.keeper import Door, Keeper
from longstride.tools.keeper_link import KeeperLink
from longstride.tools.kept_call import KeptAnswer, KeptCall
from tests.support.leaks import none_left

COMMAND = ExecuteAction(
    step=7, action=Action(tool="noop", arguments={}), tools=("noop",), limits=SandboxLimits(), isolation="process"
)


def answered(call: KeptCall, _: threading.Event) -> KeptAnswer:
    return KeptAnswer(executed=ActionExecuted(step=call.command.step))


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path / "door", os.getpid())


@pytest.fixture
def households(tmp_path: Path) -> Iterator[Households]:
    with none_left():
        workspaces = Workspaces(MemoryArtifacts(), MemorySandbox(tmp_path / "v", {}).volumes)
        yield Households(workspaces)
        workspaces.close()


class Serving:
    """A keeper in a thread."""

    def __init__(self, keeper: Keeper, door: Door) -> None:
        with door.locked():
            self.listener = door.listen()
        self._service = os.pidfd_open(os.getpid())
        self.thread = threading.Thread(target=keeper.serve, args=(self.listener, self._service))

    def close(self) -> None:
        self.thread.join(10)
        os.close(self._service)
        assert not self.thread.is_alive()


def ask(door: Door, cancelled: threading.Event | None = None) -> ActionExecuted:
    link = KeeperLink(door, ["false"])
    return link.execute(COMMAND, task_id="t", session_id="s", cancelled=cancelled or threading.Event())


@pytest.mark.parametrize("where", ["accept", "thread"])
def test_a_call_that_cannot_be_taken_now_is_taken_later(
    door: Door, households: Households, where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keeper, refusals = Keeper(door, answered, households), iter(range(99))
    serving = Serving(keeper, door)
    accept, start = socket.socket.accept, threading.Thread.start

    def out_of_descriptors(listener: socket.socket) -> object:
        if not next(refusals):
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listener)

    def out_of_threads(thread: threading.Thread) -> None:
        if thread.name == "kept call" and not next(refusals):
            raise RuntimeError("can't start new thread")
        start(thread)

    serving.thread.start()
    if where == "accept":
        monkeypatch.setattr(socket.socket, "accept", out_of_descriptors)
    else:
        monkeypatch.setattr(threading.Thread, "start", out_of_threads)
    assert ask(door).step == 7
    assert "the keeper cannot take a call now" in caplog.text
    keeper.stop()
    serving.close()


def test_a_keeper_ends_when_a_part_beside_it_cannot_go_on(door: Door, households: Households) -> None:
    failed = threading.Event()
    serving = Serving(Keeper(door, answered, households, failed=failed.is_set), door)
    serving.thread.start()
    assert ask(door).step == 7
    failed.set()
    serving.close()
    assert list(door.folder.glob("*.sock")) == []


@pytest.fixture
def silent(door: Door) -> Iterator[socket.socket]:
    """A keeper that takes nothing."""
    with door.locked(), door.listen() as listener:
        yield listener


def test_a_keeper_that_says_nothing_is_not_waited_for(
    door: Door, silent: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_link, "GREET_S", 0.1)
    with pytest.raises(SandboxFailed, match="has not answered"):
        ask(door)


def test_a_call_that_is_called_off_does_not_wait_for_a_greeting(door: Door, silent: socket.socket) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(ExecutionCancelled):
        ask(door, cancelled)


def test_a_full_backlog_is_waited_for(door: Door, silent: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_link, "GREET_S", 0.1)
    silent.listen(0)
    with door.address() as address, socket.socket(socket.AF_UNIX) as first:
        first.connect(address)
        with pytest.raises(SandboxFailed, match="has not answered"):
            ask(door)


def test_who_waits_for_another_to_start_one_can_be_called_off(door: Door) -> None:
    cancelled = threading.Event()
    with door.locked():
        timer = threading.Timer(0.2, cancelled.set)
        timer.start()
        with pytest.raises(ExecutionCancelled):
            ask(door, cancelled)
        timer.join()


@pytest.mark.parametrize("spoil", [lambda path: path.chmod(0o755), lambda path: os.chown(path, 65534, 65534)])
def test_in_a_folder_that_is_not_the_users_alone_nobody_is_believed(door: Door, spoil: Callable[[Path], None]) -> None:
    """Whoever may write there can listen there, and would be given every call."""
    door.folder.mkdir(mode=0o700)
    stranger = socket.socket(socket.AF_UNIX)
    with stranger, door.address() as address:
        stranger.bind(address)
        stranger.listen()
    try:
        spoil(door.folder)
    except PermissionError:
        pytest.skip("only root gives folders away")
    link = KeeperLink(door, ["false"])
    with pytest.raises(SandboxFailed, match=r"no socket for tasks' processes in .*: it is not this user's alone"):
        link.execute(COMMAND, task_id="t", session_id="s")
