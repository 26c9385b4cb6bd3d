"""What gVisor and an engine's containers give a task; what they keep from it is in test_sandbox_hostile.py. Needs root, and runsc
or a Docker engine."""

import os
from collections.abc import Iterator

import pytest

from longstride.sandbox.base import Command, Execution
from longstride.sandbox.errors import IsolationUnavailable
from tests.support.engine import engine
from tests.support.eventually import eventually
from tests.support.sandboxes import SMALL, Arena, arena
from tests.support.talker import Talker

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the oci backend needs root")


@pytest.fixture(scope="module")
def docker_engine() -> Iterator[str]:
    with engine() as address:
        yield address


@pytest.fixture(scope="module", params=["runsc", "docker", "docker-runsc"])
def box(request: pytest.FixtureRequest) -> Iterator[Arena]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param.startswith("docker"):
            patch.setenv("DOCKER_HOST", request.getfixturevalue("docker_engine"))
        with arena(name=request.param) as made:
            yield made


@pytest.fixture
def in_gvisor(box: Arena) -> bool:
    return "gvisor" in box.backend.capabilities().isolation


@pytest.fixture(autouse=True)
def the_next_call_is_served(box: Arena) -> Iterator[None]:
    yield
    told = box.act("shell", command="echo still here", task="next")
    assert told.observation is not None
    assert (told.observation.status, told.observation.text) == ("ok", "still here\n")
    assert box.left_over() == set()


def said(execution: Execution) -> str:
    return execution.stdout.decode(errors="replace") + execution.stderr.decode(errors="replace")


def test_the_kernel_is_gvisors_where_it_is_said_to_be(box: Arena, in_gvisor: bool) -> None:
    told = said(box.shell("uname -r"))
    assert (os.uname().release not in told) == in_gvisor


def test_it_gives_what_a_task_may_ask_for(box: Arena, in_gvisor: bool) -> None:
    with box.volume() as volume:
        gvisor = Command(("true",), volume, SMALL, isolation="gvisor")
        if in_gvisor:
            assert box.backend.run(gvisor).status == "ok"
        else:
            with pytest.raises(IsolationUnavailable, match="needs gvisor isolation"):
                box.backend.run(gvisor)
        with pytest.raises(IsolationUnavailable, match="needs microvm isolation"):
            box.backend.run(Command(("true",), volume, SMALL, isolation="microvm"))


def test_a_workspace_is_worked_on_and_kept(box: Arena) -> None:
    first = box.act("shell", command="id -u; echo one > file; mkdir -p deep/er; ln -s file link", task="kept")
    assert first.observation is not None
    assert first.observation.text != "0\n"
    box.workspaces.forget("kept")
    told = box.act("shell", command="cat link; echo two >> file; cat file", workspace=first.workspace, task="kept")
    assert told.observation is not None
    assert told.observation.text == "one\none\ntwo\n"


def test_the_commands_code_environment_and_files_come_through(box: Arena) -> None:
    with box.volume() as volume:
        code = "import os; print(open('/run/longstride/given').read(), os.environ['NAME'], os.getcwd()); raise SystemExit(9)"
        command = Command(("python3", "-c", code), volume, SMALL, env={"NAME": "x y"}, files={"given": b"content"})
        execution = box.backend.run(command)
    assert (execution.status, execution.exit_code, execution.stdout) == ("failed", 9, b"content x y /workspace\n")


def test_a_program_is_talked_with(box: Arena) -> None:
    talker = Talker()
    with box.volume() as volume:
        thread = talker.start(box.backend, Command(("cat",), volume, SMALL))
        talker.tell(b"hello\n")
        eventually(lambda: talker.out == b"hello\n")
        assert talker.stdin is not None
        talker.stdin.hang_up()
        thread.join()
    assert talker.execution is not None
    assert talker.execution.exit_code == 0
