"""Code that means harm in gVisor and in an engine's containers: what must hold whatever their kernel answers. Needs root, and
runsc or a Docker engine."""

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox import cgroup
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


def limits(**changes: object) -> SandboxLimits:
    return SMALL.model_validate({**SMALL.model_dump(), **changes})


def said(execution: Execution) -> str:
    return execution.stdout.decode(errors="replace") + execution.stderr.decode(errors="replace")


def test_the_kernel_is_gvisors_where_it_is_said_to_be(box: Arena, in_gvisor: bool) -> None:
    assert ("gVisor" in said(box.shell("dmesg"))) == in_gvisor
    assert (os.uname().release not in said(box.shell("uname -r"))) == in_gvisor


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


@pytest.mark.parametrize(
    ("greed", "limit"),
    [
        ("x = bytearray(1 << 30)", "memory_mb=96"),
        ("f = open('f', 'wb')\nwhile 1: f.write(bytes(1 << 20))", "disk_mb=8"),
        ("for i in range(10**5): open(str(i), 'w')", "files=500"),
        ("while 1: pass", "cpu_s=2"),
        ("while 1: print('y' * 1000)", "output_mb=1"),
    ],
    ids=["memory", "disk", "files", "cpu", "output"],
)
def test_too_much_of_something_is_named(box: Arena, greed: str, limit: str) -> None:
    execution = box.python(greed, limits(cpu_s=2, output_mb=1))
    assert (execution.status, execution.limit) == ("limit", limit)


@pytest.mark.parametrize("bomb", [":(){ :|:& };:; wait", "python3 -c 'import os\nwhile 1: os.fork()'"])
def test_fork_bomb(box: Arena, bomb: str) -> None:
    """What the host sees of it is bounded, memory first."""
    most, done = 0, threading.Event()

    def count() -> None:
        nonlocal most
        while not done.wait(0.05):
            most = max([most, *counts(box)])

    watcher = threading.Thread(target=count)
    watcher.start()
    box.shell(bomb, limits(wall_s=10))
    done.set()
    watcher.join()
    assert 1 < most <= SMALL.processes + 256
    assert box.shell("echo alive").stdout == b"alive\n", "the next call is served"


def counts(box: Arena) -> Iterator[int]:
    """Processes and threads in each of the sandboxes' groups on the host."""
    for hierarchy in (*cgroup.discover(), *cgroup.mounted()):
        for pattern in (f"{box.scratch.name}-*", "docker/*"):
            for path in hierarchy.base.glob(f"{pattern}/pids.current"):
                with suppress(OSError):
                    yield int(path.read_text())


@pytest.mark.parametrize("how", ["wall clock", "cancellation"])
def test_what_does_not_want_to_end_is_ended(box: Arena, how: str) -> None:
    code = "import signal, time\nfor s in (1, 2, 3, 15): signal.signal(s, signal.SIG_IGN)\ntime.sleep(60)"
    cancelled = threading.Event()
    if how == "cancellation":
        threading.Timer(0.5, cancelled.set).start()
    started = time.monotonic()
    execution = box.python(code, limits(wall_s=1 if how == "wall clock" else 60), cancelled)
    assert execution.killed if how == "cancellation" else (execution.limit == "wall_s=1")
    assert time.monotonic() - started < 5


def test_a_daemon_dies_with_its_command(box: Arena) -> None:
    command = (
        "(setsid sh -c 'while :; do echo x >> beat; sleep 0.01; done' >/dev/null 2>&1 &) ; sleep 0.3; echo started"
    )
    with box.volume() as volume:
        assert box.backend.run(Command(("/bin/bash", "-c", command), volume, SMALL)).status == "ok"
        size = (volume.path / "beat").stat().st_size
        time.sleep(0.1)
        assert (volume.path / "beat").stat().st_size == size > 0


def test_nothing_of_the_host_is_there(box: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("correct-horse")
    tmp_path.chmod(0o755)
    monkeypatch.setenv("LONGSTRIDE_SECRET", "correct-horse")
    told = said(box.shell(f"cat {tmp_path}/secret /etc/shadow /proc/1/root/etc/shadow /proc/*/environ; env; ls /proc"))
    assert "correct-horse" not in told
    assert "root:" not in told
    pids = [int(word) for word in told.split() if word.isdigit()]
    assert os.getpid() not in pids


@pytest.mark.parametrize("path", ["/usr/owned", "/etc/passwd", "/owned", "/dev/owned", "/run/longstride/owned"])
def test_nothing_of_the_system_can_be_written(box: Arena, path: str) -> None:
    assert "written" not in said(box.python(f"open({path!r}, 'a').write('x'); print('written')"))
    assert not Path("/owned").exists()


def test_the_hosts_network_is_not_there(box: Arena) -> None:
    code = (
        "import socket\n"
        "for address in (('127.0.0.1', 5672), ('192.0.2.1', 80), ('8.8.8.8', 53)):\n"
        "    with socket.socket() as s:\n"
        "        s.settimeout(2)\n"
        "        try: s.connect(address); print('connected')\n"
        "        except OSError as e: print(type(e).__name__)"
    )
    told = said(box.python(code))
    assert "connected" not in told
    assert len(told.split()) == 3


def test_no_privilege_can_be_had(box: Arena) -> None:
    status = said(box.shell("grep -E '^Cap(Eff|Prm|Bnd)' /proc/self/status; mount -t tmpfs x /tmp && echo mounted"))
    assert set(re.findall(r"Cap\w+:\s+(\w+)", status)) == {"0" * 16}
    assert "mounted" not in status


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
