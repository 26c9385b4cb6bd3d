"""The way out of real sandboxes: what is allowed works, nothing else does, and nothing stays behind.

Needs bubblewrap; runc where it is. The servers listen on loopback, which the tests open by argument; names come from a resolver of theirs.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_network
from pathlib import Path

import pytest

from longstride.contracts.v1.action import Action
from longstride.contracts.v1.commands import ExecuteAction
from longstride.contracts.v1.egress import Egress, EgressRule
from longstride.contracts.v1.limits import Allowance, SandboxLimits, Share
from longstride.sandbox import cgroup
from longstride.sandbox.backends import PROGRAMS, BackendName
from longstride.sandbox.base import Command, Execution
from longstride.sandbox.egress.addresses import Addresses
from longstride.sandbox.egress.gate import Gates
from longstride.sandbox.egress.proxy import World
from longstride.sandbox.mounts import mounts_below
from tests.support.eventually import eventually
from tests.support.http_server import listening
from tests.support.sandboxes import SMALL, Arena, arena, processes_of

HOST = "packages.example.com"


class Pages(BaseHTTPRequestHandler):
    """``/N``: N bytes."""

    def do_GET(self) -> None:
        body = b"x" * int(self.path.rpartition("/")[2] or 0)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        left = int(self.headers["Content-Length"])
        while left:
            left -= len(self.rfile.read(min(left, 1 << 16)) or b"x" * left)
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with listening(Pages) as number:
        yield number


@pytest.fixture(scope="module", params=("bubblewrap", "runc"))
def box(request: pytest.FixtureRequest) -> Iterator[Arena]:
    world = World(addresses=Addresses([ip_network("127.0.0.0/8")]), resolve=lambda host, port: ["127.0.0.1"])
    with arena(name=request.param, gates=Gates(world)) as made:
        yield made


def way_out(port: int, **bounds: int) -> Egress:
    return Egress(rules=(EgressRule(host=HOST, ports=(port,)),), **bounds)


def run(box: Arena, code: str, egress: Egress | None, limits: SandboxLimits = SMALL, shell: bool = False) -> Execution:
    argv = ("/bin/bash", "-c", code) if shell else ("python3", "-c", code)
    with box.volume(limits) as volume:
        execution = box.backend.run(Command(argv, volume, limits, egress=egress))
        assert processes_of(volume) == [], "the sandbox, or its relay, left processes behind"
    assert not [thread for thread in threading.enumerate() if thread.name == "egress-proxy"]
    return execution


def fetch(url: str) -> str:
    return f"import urllib.request as u; print(len(u.urlopen({url!r}).read()))"


def test_a_program_that_honours_the_variables_reaches_what_is_allowed(box: Arena, port: int) -> None:
    end = run(box, fetch(f"http://{HOST}:{port}/300000"), way_out(port))
    assert (end.status, end.stdout) == ("ok", b"300000\n"), end.stderr
    (one,) = end.connections
    assert (one.host, one.port, one.address, one.verdict) == (HOST, port, "127.0.0.1", "allowed")
    assert one.received > 300_000
    assert one.sent > 0


def test_tunnels_too(box: Arena, port: int) -> None:
    end = run(
        box, f"curl -sS --proxytunnel http://{HOST}:{port}/5 && echo; nproc >/dev/null", way_out(port), shell=True
    )
    assert (end.status, end.stdout) == ("ok", b"xxxxx\n"), end.stderr
    assert [c.verdict for c in end.connections] == ["allowed"]


@pytest.mark.parametrize("upload", [False, True])
def test_many_connections_at_once_and_much_through_them(box: Arena, port: int, upload: bool) -> None:
    call = f"u.urlopen('http://{HOST}:{port}/400000'" + (", data=bytes(400000))" if upload else ")")
    code = (
        "import urllib.request as u\nfrom concurrent.futures import ThreadPoolExecutor as P\n"
        f"def one(_): return len({call}.read())\nwith P(10) as p: print(sum(p.map(one, range(20))))"
    )
    end = run(box, code, way_out(port, kbytes_per_s=1_000_000))
    assert (end.status, end.stdout) == ("ok", b"0\n" if upload else b"8000000\n"), end.stderr
    moved = [c.sent if upload else c.received for c in end.connections]
    assert (len(moved), min(moved) > 400_000) == (20, True)


def test_another_host_is_refused_in_words_that_the_program_shows(box: Arena, port: int) -> None:
    end = run(box, fetch("https://other.example.com/"), way_out(port))
    assert end.status == "failed"
    assert b"403 other.example.com:443 is not on this task's allow-list" in end.stderr
    assert [c.verdict for c in end.connections] == ["refused"]


def test_loopback_of_the_host_is_refused_unless_a_test_opens_it(port: int) -> None:
    world = World(resolve=lambda host, port: ["127.0.0.1"])
    with arena(gates=Gates(world)) as real:
        end = run(real, fetch(f"http://{HOST}:{port}/5"), way_out(port))
    assert end.status == "failed"
    (one,) = end.connections
    assert one.why == f"{HOST} is at 127.0.0.1 is loopback: sandboxes never reach such addresses"


DIRECT = """
import socket
def tried(what, *to):
    try: what(*to); print("reached", to)
    except OSError as error: print("refused")
def tcp(*to): socket.create_connection(to, 2).close()
def udp(*to):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s: s.sendto(b"x", to)
def unix(to):
    with socket.socket(socket.AF_UNIX) as s: s.connect(to)
"""


def test_nothing_else_leads_out(box: Arena, port: int) -> None:
    with socket.socket(socket.AF_UNIX) as abstract, tempfile.TemporaryDirectory() as folder:
        name = f"longstride-{os.getpid()}"
        abstract.bind(f"\0{name}")
        abstract.listen()
        Path(folder).chmod(0o755)
        with socket.socket(socket.AF_UNIX) as named:
            named.bind(f"{folder}/socket")
            Path(f"{folder}/socket").chmod(0o777)
            named.listen()
            places = [
                f"tcp, '127.0.0.1', {port}",
                "tcp, '1.1.1.1', 443",
                "tcp, '169.254.169.254', 80",
                f"tcp, '{HOST}', {port}",
                "udp, '1.1.1.1', 53",
                f"unix, '\\0{name}'",
                f"unix, '{folder}/socket'",
                f"socket.getaddrinfo, '{HOST}', {port}",
            ]
            end = run(box, DIRECT + "\n".join(f"tried({place})" for place in places), way_out(port))
    assert end.stdout.split() == [b"refused"] * len(places), end.stdout + end.stderr
    assert end.connections == ()


FIND_SOCKETS = """
import os, stat
for folder, inner, names in os.walk('/'):
    inner[:] = [name for name in inner if os.path.join(folder, name) not in ('/proc', '/usr')]
    for name in names:
        path = os.path.join(folder, name)
        if stat.S_ISSOCK(os.lstat(path).st_mode): print(path)
with socket.socket(socket.AF_UNIX) as s:
    s.connect('/run/longstride/egress.sock'); s.sendall(b'SSH-2.0-x\\r\\n\\r\\n'); print(s.recv(12))
"""


def test_the_only_socket_inside_is_the_gates_and_it_speaks_proxy_alone(box: Arena, port: int) -> None:
    end = run(box, DIRECT + FIND_SOCKETS, way_out(port))
    assert end.stdout == b"/run/longstride/egress.sock\nb'HTTP/1.1 400'\n", end.stderr
    assert [c.verdict for c in end.connections] == ["refused"]


def test_without_egress_there_is_neither_socket_nor_relay_nor_variable(box: Arena) -> None:
    end = run(box, "ls -A /run/longstride; env | grep -ci proxy; ls /proc | grep -c '^[0-9]'", None, shell=True)
    assert end.stdout.split()[0] == b"0"
    assert end.connections == ()


# -- the relay is nobody's but the sandbox's -----------------------------------------------------------------------------


def test_the_relay_is_not_the_programs_child(box: Arena, port: int) -> None:
    end = run(box, "import os\ntry: os.wait()\nexcept ChildProcessError: print('alone')", way_out(port))
    assert end.stdout == b"alone\n", end.stderr


def test_the_program_has_its_own_signals_exit_code_and_descriptors(box: Arena, port: int) -> None:
    code = "yes | head -1 >/dev/null; echo ${PIPESTATUS[0]}; ls /proc/self/fd | wc -l; exit 7"
    bare, out = (run(box, code, egress, shell=True) for egress in (None, way_out(port)))
    assert out.stdout == bare.stdout
    assert out.stdout.split()[0] == b"141", "SIGPIPE ends yes"
    assert (out.exit_code, bare.exit_code) == (7, 7)


@pytest.mark.parametrize(
    ("code", "limit"),
    [
        ("x = bytearray(1 << 30)", "memory_mb=96"),
        ("f = open('f', 'wb')\nwhile 1: f.write(bytes(1 << 20))", "disk_mb=8"),
        ("while True: pass", "cpu_s=1"),
    ],
)
def test_limits_are_those_of_the_task_and_named_so(box: Arena, port: int, code: str, limit: str) -> None:
    end = run(box, code, way_out(port), SMALL.model_copy(update={"cpu_s": 1.0}))
    assert (end.status, end.limit) == ("limit", limit)


def test_the_relay_takes_no_process_of_the_agents(box: Arena, port: int) -> None:
    """How many can be started is the same with and without it."""
    code = (
        "import os, time\nn = 0\ntry:\n  while n < 100:\n    if os.fork() == 0: time.sleep(60)\n    n += 1\n"
        "except OSError: pass\nprint(n)"
    )
    bounds = SMALL.model_copy(update={"processes": 12})
    assert run(box, code, way_out(port), bounds).stdout == run(box, code, None, bounds).stdout


def test_an_agent_that_kills_the_relay_is_alone(box: Arena, port: int) -> None:
    code = (
        "import os, signal\nfor p in filter(str.isdigit, os.listdir('/proc')):\n"
        "  if b'egress-relay' in open(f'/proc/{p}/cmdline', 'rb').read() and int(p) != os.getpid(): os.kill(int(p), signal.SIGKILL)\n"
    ) + fetch(f"http://{HOST}:{port}/5")
    end = run(box, code, way_out(port))
    assert end.status == "failed"
    assert b"Connection refused" in end.stderr


# -- what the agent and the record are told ----------------------------------------------------------------------------


def act(box: Arena, code: str, egress: Egress, limits: SandboxLimits = SMALL, allowance: Allowance | None = None):
    command = ExecuteAction(
        step=1,
        action=Action(tool="python", arguments={"code": code}),
        tools=(),
        limits=limits,
        isolation="process",
        egress=egress,
        allowance=allowance,
    )
    return box.executor.execute(command, task_id="task", session_id="session")


def test_a_cap_that_was_hit_is_the_limit_and_says_how_far_it_got(box: Arena, port: int) -> None:
    told = act(box, fetch(f"http://{HOST}:{port}/3000000"), way_out(port, max_mbytes=1, kbytes_per_s=100_000))
    assert told.observation is not None
    assert (told.observation.status, told.observation.limit) == ("limit", "egress.max_mbytes=1")
    assert re.search(r"0\.0 MiB sent and (0\.9|1\.0) MiB received", told.observation.text)
    assert told.traffic is not None
    assert 0 < told.traffic.received <= 1 << 20


def test_a_budget_of_the_task_holds_and_is_told_as_the_tasks(box: Arena, port: int) -> None:
    left = Allowance(received_mb=Share(most=20, left=0.5), sent_mb=Share(most=20, left=20))
    told = act(box, fetch(f"http://{HOST}:{port}/3000000"), way_out(port, kbytes_per_s=100_000), allowance=left)
    assert told.observation is not None
    assert (told.observation.status, told.observation.limit) == ("limit", "limits.received_mb=20")
    assert (
        "stopped by the task's received_mb=20 (this call had the 0.5 MiB that were left) after" in told.observation.text
    )
    assert told.usage.received_bytes == 1 << 19
    assert 0 < told.usage.sent_bytes < 1000


def test_a_rate_holds_a_download_back(box: Arena, port: int) -> None:
    """700 KiB at 400 KiB/s, of which 100 KiB go at once."""
    end = run(box, fetch(f"http://{HOST}:{port}/{700 * 1024}"), way_out(port, kbytes_per_s=400))
    assert end.status == "ok"
    assert end.usage.wall_ms >= 1500


@pytest.mark.parametrize("upload", [False, True])
def test_a_call_that_the_rate_made_too_slow_says_so_and_how_far_it_got(box: Arena, port: int, upload: bool) -> None:
    size = 3_000_000
    code = (
        f"import urllib.request as u; u.urlopen('http://{HOST}:{port}/1', data=bytes({size}))"
        if upload
        else fetch(f"http://{HOST}:{port}/{size}")
    )
    told = act(box, code, way_out(port, kbytes_per_s=200), SMALL.model_copy(update={"wall_s": 3.0}))
    assert told.observation is not None
    assert (told.observation.status, told.observation.limit) == ("timeout", "egress.kbytes_per_s=200")
    moved = r"0\.[1-9] MiB sent and 0\.0 MiB received" if upload else r"0\.0 MiB sent and 0\.[1-9] MiB received"
    line = rf"stopped by wall_s=3, while egress\.kbytes_per_s=200 held the network back, after 3\.\d s, .*, {moved}$"
    assert re.search(line, told.observation.text)


def test_a_call_that_was_slow_by_itself_is_not_blamed_on_the_rate(box: Arena, port: int) -> None:
    code = fetch(f"http://{HOST}:{port}/100000") + "\nimport time; time.sleep(60)"
    told = act(box, code, way_out(port, kbytes_per_s=400), SMALL.model_copy(update={"wall_s": 3.0}))
    assert told.observation is not None
    assert (told.observation.status, told.observation.limit) == ("timeout", "wall_s=3")


def test_every_connection_is_in_the_record_however_many(box: Arena, port: int) -> None:
    code = (
        "import socket\nfor i in range(40):\n  s = socket.create_connection(('127.0.0.1', 3128))\n"
        "  s.sendall(f'CONNECT h{i}.example.net:443 HTTP/1.0\\r\\n\\r\\n'.encode()); s.recv(1000); s.close()"
    )
    told = act(box, code, way_out(port))
    assert told.traffic is not None
    assert (told.traffic.total, told.traffic.refused, len(told.traffic.connections)) == (40, 40, 24)
    assert told.traffic.log is not None
    lines = [json.loads(line) for line in box.artifacts.get(told.traffic.log).splitlines()]
    assert [line["host"] for line in lines] == [f"h{i}.example.net" for i in range(40)]
    assert told.observation is not None
    assert "[network: h0.example.net:443 is not on this task's allow-list" in told.observation.text
    assert "[network: and 37 more such]" in told.observation.text


# -- kill -9 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["bubblewrap", "runc"])
def test_kill_of_the_executor_leaves_no_socket_and_no_relay(port: int, backend: BackendName) -> None:
    if shutil.which(PROGRAMS[backend]) is None:
        pytest.skip(f"{backend} is not installed")
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        folder.chmod(0o755)
        command = ExecuteAction(
            step=1,
            action=Action(tool="python", arguments={"code": "open('half', 'w'); import time; time.sleep(60)"}),
            tools=(),
            limits=SMALL,
            isolation="process",
            egress=way_out(port),
        )
        arguments = [
            str(folder / "scratch"),
            str(folder / "artifacts"),
            "during-run",
            command.model_dump_json(),
            "0",
            backend,
        ]
        doomed = subprocess.run(
            [sys.executable, "-m", "tests.support.doomed_executor", *arguments],
            capture_output=True,
            cwd=Path(__file__).parents[2],
            timeout=60,
            check=False,
        )
        assert doomed.returncode == -signal.SIGKILL, doomed.stderr
        eventually(lambda: left_of(folder / "scratch") == [])


def left_of(scratch: Path) -> list[str]:
    names = [path.name for path in scratch.iterdir()]
    groups = [str(path) for h in cgroup.discover() for name in names for path in h.base.glob(f"{name}-*")]
    relays = [str(path) for path in Path("/proc").iterdir() if path.name.isdigit() and _mentions(path, str(scratch))]
    sockets = [line for line in Path("/proc/net/unix").read_text().splitlines() if str(scratch) in line]
    return [*names, *groups, *relays, *sockets, *map(str, mounts_below(scratch))]


def _mentions(process: Path, text: str) -> bool:
    try:
        return text.encode() in (process / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
