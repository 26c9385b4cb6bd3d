"""Processes that live between the calls of a task, in real sandboxes."""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from longstride.contracts.v1.check import CommandCheck
from longstride.contracts.v1.egress import Egress, EgressRule
from longstride.sandbox.base import Spec
from longstride.sandbox.cell import HostedCell
from longstride.sandbox.errors import ExecutionCancelled, NetworkGone, SandboxFailed
from longstride.tools.executor import Executor
from longstride.tools.household import Bounds, Households
from longstride.tools.registry import builtin_tools
from tests.support.engine import engine
from tests.support.eventually import eventually
from tests.support.living import LivingTask
from tests.support.sandboxes import POOL, SMALL, Arena, arena

LIMITS = SMALL.model_copy(update={"disk_mb": 16})
SERVER = "exec python3 -u -m http.server 8000 --bind 127.0.0.1"
GET = (
    'python3 -c "import urllib.request as u; print(u.build_opener(u.ProxyHandler({})).open('
    "'http://127.0.0.1:8000/%s', timeout=5).read().decode())\""
)


@dataclass
class House:
    box: Arena
    households: Households
    task: LivingTask


@pytest.fixture(scope="module", params=["bubblewrap", "runc"])
def box(request: pytest.FixtureRequest) -> Iterator[Arena]:
    with arena(name=request.param) as made:
        yield made


def house_in(box: Arena, bounds: Bounds = Bounds()) -> House:
    households = Households(box.workspaces, bounds)
    executor = Executor(box.backend, box.workspaces, box.artifacts, builtin_tools(), households=households)
    return House(box, households, LivingTask(executor, LIMITS))


@pytest.fixture
def house(box: Arena) -> Iterator[House]:
    made = house_in(box)
    yield made
    made.households.close()
    box.workspaces.forget("task")
    eventually(lambda: box.left_over() == set())


def started(house: House, name: str, command: str, **more: object) -> str:
    status, text = house.task.call("process_start", name=name, command=command, **more)
    assert status == "ok", text
    return text


def test_a_server_is_started_queried_edited_and_stopped(house: House) -> None:
    task = house.task
    task.call("write_file", path="site/page.html", content="first")
    started(house, "web", SERVER, cwd="site")
    task.call("process_poll", name="web", wait_s=10, pattern="Serving HTTP")
    eventually(lambda: task.call("shell", command=GET % "page.html") == ("ok", "first\n"))
    task.call("write_file", path="site/page.html", content="second")
    assert task.call("shell", command=GET % "page.html") == ("ok", "second\n")
    assert "GET /page.html" in task.call("process_poll", name="web")[1]
    status, text = task.call("process_stop", name="web")
    assert (status, text.splitlines()[-1]) == ("ok", "[web ended with exit code 143]")
    assert "Connection refused" in task.call("shell", command=GET % "page.html")[1]


def test_two_processes_share_a_network_and_other_tasks_do_not(house: House) -> None:
    task = house.task
    task.call("write_file", path="a", content="here")
    started(house, "web", SERVER)
    task.call("process_poll", name="web", wait_s=10, pattern="Serving HTTP")
    started(house, "client", f"{GET % 'a'}; exec sleep 60")
    assert "here\n" in task.call("process_poll", name="client", wait_s=10, pattern="here")[1]
    other = LivingTask(task.executor, LIMITS, "stranger")
    assert "Connection refused" in other.call("shell", command=GET % "a")[1]
    house.box.workspaces.forget("stranger")
    # The second keeps the network that both share.
    task.call("process_stop", name="web")
    started(house, "again", SERVER)
    eventually(lambda: task.call("shell", command=GET % "a") == ("ok", "here\n"))


def test_an_interpreter_is_talked_with(house: House) -> None:
    task = house.task
    started(house, "py", "exec python3 -i -u -q")
    task.call("process_send", name="py", text="x = 6 * 7")
    task.call("process_send", name="py", text="print(x)", wait_s=0)
    assert "42\n" in task.call("process_poll", name="py", wait_s=10, pattern="42\n")[1]
    task.call("process_send", name="py", text="import os; os._exit(7)", wait_s=5)
    eventually(lambda: "ended with exit code 7" in task.call("process_poll", name="py")[1])


def test_a_program_that_ends_well_is_given_the_time_to(house: House) -> None:
    script = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(open('bye', 'w').write('x') and 0))\nprint('up', flush=True)\ntime.sleep(60)\n"
    house.task.call("write_file", path="p.py", content=script)
    started(house, "p", "cd /workspace && python3 p.py; echo over")
    house.task.call("process_poll", name="p", wait_s=10, pattern="up")
    assert "over\n[p ended with exit code 0]" in house.task.call("process_stop", name="p")[1]
    assert house.task.call("shell", command="cat bye") == ("ok", "x\n")


def test_one_that_ignores_everything_is_killed(house: House) -> None:
    started(house, "s", "trap '' TERM HUP INT; echo up; while :; do sleep 60; done")
    house.task.call("process_poll", name="s", wait_s=5, pattern="up")
    assert house.task.call("process_stop", name="s", grace_s=0.5)[1].endswith("[s was killed]")


def test_a_flood_is_bounded_and_stopped_by_the_tasks_limit(house: House) -> None:
    house.task.call("process_start", name="f", command="exec yes")
    status, text = house.task.call("process_poll", name="f", wait_s=20, until_end=True)
    assert (status, text.splitlines()[-1]) == ("limit", "[f was stopped by output_mb=16]")


def test_a_fork_bomb_leaves_the_executor_serving(house: House) -> None:
    house.task.call("process_start", name="bomb", command=":(){ :|:& };:; sleep 60")
    assert LivingTask(house.task.executor, LIMITS, "next").call("shell", command="echo served") == ("ok", "served\n")
    house.box.workspaces.forget("next")
    assert house.task.call("shell", command="echo served") == ("ok", "served\n")
    status, _ = house.task.call("process_stop", name="bomb", grace_s=0.1)
    assert status in ("ok", "limit")


def test_what_it_writes_all_the_time_is_collected_whole(house: House) -> None:
    task = house.task
    writer = "i=0; while :; do i=$((i+1)); echo $i > n.tmp; mv n.tmp n; echo $i >> log; done"
    started(house, "w", writer)
    for _ in range(5):
        assert task.call("shell", command="cat n")[0] == "ok"
    task.call("process_stop", name="w")
    last = task.call("shell", command="tail -n 1 log")
    house.box.workspaces.forget("task")
    assert task.call("shell", command="tail -n 1 log") == last


GIVER = (
    'exec python3 -c "import socket; s = socket.socket(socket.AF_UNIX); s.connect(chr(0) + str(7)); '
    "socket.send_fds(s, [b'x'], [0]); s.recv(1)\""
)
HOLDER = (
    'exec python3 -uc "import socket, time; s = socket.socket(socket.AF_UNIX); s.bind(chr(0) + str(7)); s.listen(); '
    "print('up'); c, _ = s.accept(); held = socket.recv_fds(c, 1, 1); print('holds'); input(); c.close(); time.sleep(60)\""
)


def test_one_whose_input_is_in_other_hands_ends_all_the_same(house: House) -> None:
    """Nobody reads the pipe, and it breaks only when the other one ends."""
    started(house, "holder", HOLDER)
    started(house, "giver", GIVER)
    assert "holds" in house.task.call("process_poll", name="holder", wait_s=10, pattern="holds")[1]
    status, text = house.task.call("process_send", name="giver", text="x" * 200_000, wait_s=0)
    assert (status, "it has not read all" in text) == ("ok", True), text
    house.task.call("process_send", name="holder", wait_s=0)
    assert "ended with exit code 0" in house.task.call("process_poll", name="giver", wait_s=10, until_end=True)[1]
    assert "runs for" in house.task.call("process_poll", name="holder")[1]


def test_the_program_of_one_is_not_written_over(house: House) -> None:
    started(house, "server", "cp /usr/bin/sleep server && exec ./server 60")
    status, text = house.task.call("write_file", path="server", content="x")
    assert (status, text) == ("failed", "server: a program is running from it: stop that first")
    assert "runs for" in house.task.call("process_poll", name="server")[1]


def test_a_socket_in_the_workspace_does_not_end_it(house: House) -> None:
    code = (
        "import socket; s = socket.socket(socket.AF_UNIX); s.bind('s'); s.listen(); print('up', flush=True); s.accept()"
    )
    started(house, "u", f'exec python3 -c "{code}"')
    house.task.call("process_poll", name="u", wait_s=5, pattern="up")
    assert "[u runs" in house.task.call("process_poll", name="u")[1]
    connect = "import socket; socket.socket(socket.AF_UNIX).connect('s')"
    assert house.task.call("shell", command=f'python3 -c "{connect}"')[0] == "ok"
    eventually(lambda: "ended with exit code 0" in house.task.call("process_poll", name="u")[1])


def test_a_stopped_call_takes_it_along_and_leaves_nothing(house: House) -> None:
    cancelled = threading.Event()
    started(house, "web", SERVER)
    threading.Timer(0.5, cancelled.set).start()
    with pytest.raises(ExecutionCancelled):
        house.task.call("shell", command="sleep 30", cancelled=cancelled)
    assert house.households.running == 0
    assert "it was lost: the call was stopped" in house.task.call("process_poll", again=True, name="web")[1]


def test_the_end_of_the_task_ends_it(house: House) -> None:
    started(house, "web", SERVER)
    house.households.end("task")
    assert house.households.running == 0


def test_a_submission_is_judged_beside_it(house: House) -> None:
    started(house, "w", "while :; do date > now.tmp; mv now.tmp now; done")
    check = CommandCheck(name="there", run="test -s now")
    eventually(lambda: house.task.call("shell", command="ls")[1].find("now") >= 0)
    house.task.call("submit", answer="", checks=(check,))
    assert house.task.last is not None
    assert [result.passed for result in house.task.last.checks] == [True]


def test_a_number_that_is_another_process_by_now_is_not_the_sandboxs(box: Arena) -> None:
    """The kernel gives numbers of the dead away again: what is opened by one is looked at once more."""
    sandbox = box.backend.create(Spec(SMALL))
    assert isinstance(sandbox, HostedCell)
    try:
        with box.volume() as volume:
            sandbox._jailer.reports = b'{ "child-pid": %d }\n' % os.getpid()
            with pytest.raises(SandboxFailed, match="broke while it waited"):
                sandbox.put(volume)
            assert not sandbox._folder.workspace.is_mount()
        with pytest.raises(NetworkGone):
            sandbox.open_network()
    finally:
        sandbox.destroy()


UNSTOPPABLE = """
import ctypes, fcntl, os, platform, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
seccomp, asked = {"x86_64": (317, 110), "aarch64": (277, 173)}[platform.machine()]
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, asked), (0x06, 0, 0, 0x7FC00000), (0x06, 0, 0, 0x7FFF0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("rules", ctypes.c_void_p)]
libc.prctl(38, 1, 0, 0, 0)
told = Program(len(rules), ctypes.addressof(program))
listener = libc.syscall(seccomp, 1, 0x28, ctypes.byref(told))  # a listener; who asks it can only be killed
sys.stdin.readline()
if os.fork() == 0:
    libc.syscall(asked)
    os._exit(0)
libc.ioctl(listener, ctypes.c_ulong(0xC0502100), ctypes.create_string_buffer(80))
print("asked" if listener >= 0 else "refused", flush=True)
time.sleep(60)
"""


def test_one_that_cannot_be_paused_is_ended_and_the_call_goes_on(house: House) -> None:
    house.task.call("write_file", path="odd.py", content=UNSTOPPABLE)
    started(house, "odd", "exec python3 odd.py")
    started(house, "honest", "exec sleep 60")
    status, text = house.task.call("process_send", name="odd", text="go", wait_s=5)
    assert status == "ok"
    if "asked" in text:
        told = house.task.call("process_poll", name="odd")[1]
        assert "it was lost: it could not be paused while the workspace was kept" in told
    assert house.task.call("shell", command="echo served") == ("ok", "served\n")
    assert "runs for" in house.task.call("process_poll", name="honest")[1]


def test_limits_of_its_own(box: Arena) -> None:
    house = house_in(box, Bounds(wall_s=1.5, cpu_s=60))
    house.task.call("process_start", name="s", command="exec sleep 60")
    status, text = house.task.call("process_poll", name="s", wait_s=20)
    assert (status, text) == ("limit", "[s was stopped by wall_s=1.5]")
    house.households.close()
    box.workspaces.forget("task")


def test_sandboxes_from_the_pool_live_as_well() -> None:
    with arena(name=POOL) as box:
        house = house_in(box)
        started(house, "web", SERVER)
        house.task.call("process_poll", name="web", wait_s=10, pattern="Serving HTTP")
        house.task.call("write_file", path="a", content="here")
        assert house.task.call("shell", command=GET % "a") == ("ok", "here\n")
        assert house.task.call("process_stop", name="web")[0] == "ok"
        house.households.close()
        box.workspaces.forget("task")


@pytest.fixture(params=["runsc", "docker"])
def other_box(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Arena]:
    with ExitStack() as stack:
        if request.param == "docker":
            monkeypatch.setenv("DOCKER_HOST", stack.enter_context(engine()))
        yield stack.enter_context(arena(name=request.param))


def test_without_a_shared_network_a_process_is_talked_with_and_its_files_are_seen(other_box: Arena) -> None:
    house = house_in(other_box)
    house.task.limits = LIMITS.model_copy(update={"memory_mb": 200})
    text = started(
        house, "w", "while read -r line; do echo $line > heard.tmp; mv heard.tmp heard; echo got $line; done"
    )
    assert "your other calls cannot reach its ports" in text
    house.task.call("process_send", name="w", text="hello", wait_s=0)
    house.task.call("process_poll", name="w", wait_s=10, pattern="got hello")
    assert house.task.call("shell", command="cat heard") == ("ok", "hello\n")
    assert house.task.call("process_stop", name="w")[1].endswith("[w ended with exit code 0]")
    house.households.close()
    other_box.workspaces.forget("task")


def test_calls_with_a_way_out_share_a_network_too() -> None:
    with arena() as box:
        house = house_in(box)
        house.task.egress = Egress(rules=(EgressRule(host="example.invalid", ports=(80,)),))
        house.task.call("write_file", path="a", content="here")
        started(house, "web", SERVER)
        house.task.call("process_poll", name="web", wait_s=10, pattern="Serving HTTP")
        # Both have a relay in one network: the second one listens elsewhere, and its program is told where.
        status, text = house.task.call("shell", command=f"echo $http_proxy; {GET % 'a'}")
        assert status == "ok", text
        proxy, page = text.split()
        assert page == "here"
        assert proxy.startswith("http://127.0.0.1:")
        assert proxy != "http://127.0.0.1:3128"
        # A shell that goes on does not go on with the relay of another call.
        assert house.task.call("bash", command="x=1 all_proxy=mine; unset HTTP_PROXY")[0] == "ok"
        house.task.call("process_stop", name="web")
        told = house.task.call("bash", command="echo $x $http_proxy $all_proxy ${HTTP_PROXY-none}")
        assert told == ("ok", "1 http://127.0.0.1:3128 mine none\n")
        asked = "python3 -c \"import urllib.request as u; u.urlopen('http://refused.invalid/')\""
        assert "403" in house.task.call("shell", command=asked)[1]
        assert house.task.last is not None
        assert house.task.last.traffic is not None
        house.households.close()
