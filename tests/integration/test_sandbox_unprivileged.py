"""Without root: what can be held is held, and what cannot is said."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import longstride
from tests.support.sandboxes import arena

NOBODY = 65_534

PROGRAM = """
import json, sys, threading, time
from http.server import HTTPServer, BaseHTTPRequestHandler
from ipaddress import ip_network
from pathlib import Path
from longstride.contracts.v1.egress import Egress, EgressRule
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import Command
from longstride.sandbox.bubblewrap import BubblewrapSandbox
from longstride.sandbox.egress.addresses import Addresses
from longstride.sandbox.egress.gate import Gates
from longstride.sandbox.egress.proxy import World
from longstride.contracts.v1.action import Action
from longstride.contracts.v1.commands import ExecuteAction
from longstride.sandbox.workspace import Workspaces
from longstride.storage.memory import MemoryArtifacts
from longstride.tools.executor import Executor
from longstride.tools.household import Households
from longstride.tools.registry import builtin_tools
limits = SandboxLimits(wall_s=20, cpu_s=1, processes=12, memory_mb=64, disk_mb=4, files=100)
world = World(addresses=Addresses([ip_network("127.0.0.0/8")]), resolve=lambda host, port: ["127.0.0.1"])
backend = BubblewrapSandbox(Path(sys.argv[1]), Gates(world))
volume = backend.volumes.create(limits)
told = {"missing": backend.capabilities().missing}
for name, code in json.load(sys.stdin).items():
    execution = backend.run(Command(("/bin/bash", "-c", code), volume, limits))
    if name == "daemon":
        beat = volume.path / "beat"
        told["beats"] = [beat.stat().st_size, time.sleep(0.1), beat.stat().st_size]
    told[name] = [execution.status, execution.limit, (execution.stdout + execution.stderr).decode(errors="replace")]
shown = "ls /run/longstride/mcp/x/passwd && touch /run/longstride/mcp/x/new"
execution = backend.run(Command(("/bin/bash", "-c", shown), volume, limits, folders={"mcp/x": Path("/etc")}))
told["folder"] = (execution.stdout + execution.stderr).decode()
class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.wfile.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\n\\r\\nhello")
    def log_message(self, *_): pass
server = HTTPServer(("127.0.0.1", 0), Page)
threading.Thread(target=server.serve_forever, daemon=True).start()
egress = Egress(rules=(EgressRule(host="a.example.com", ports=(server.server_port,)),))
fetch = f"import urllib.request as u; print(u.urlopen('http://a.example.com:{server.server_port}/').read())"
execution = backend.run(Command(("python3", "-c", fetch), backend.volumes.create(limits), limits, egress=egress))
told["egress"] = [execution.status, execution.stdout.decode() + execution.stderr.decode(), len(execution.connections)]
workspaces = Workspaces(MemoryArtifacts(), backend.volumes)
executor = Executor(backend, workspaces, workspaces._artifacts, builtin_tools(), households=Households(workspaces))
def call(before, tool, **arguments):
    tools, action = (tool,), Action(tool=tool, arguments=arguments)
    command = ExecuteAction(step=1, action=action, tools=tools, workspace=before, limits=limits, isolation="process")
    return executor.execute(command, task_id="task", session_id="session")
first = call(None, "bash", command="x=kept")
told["bash"] = call(first.workspace, "bash", command="echo $x").observation.text
told["process"] = call(None, "process_start", name="web", command="exec sleep 60").observation.text
told["unreadable"] = call(None, "shell", command="printf x > $'\\\\xff\\\\x1b'; chmod 0 $'\\\\xff\\\\x1b'").observation.text
closed = call(None, "shell", command="mkdir closed; chmod 555 closed")
told["closed"] = call(closed.workspace, "write_file", path="closed/new/file", content="x").observation.text
workspaces.close()
server.shutdown()
backend.volumes.destroy(volume)
backend.close()
told["left"] = [str(path) for path in Path(sys.argv[1]).iterdir()]
print(json.dumps(told))
"""

CODE = {
    "daemon": "(setsid sh -c 'while :; do echo x >> beat; done' &) ; sleep 0.2; echo ok",
    "identity": "id -u; cat /proc/self/uid_map; ls /root /home 2>&1; touch /usr/x 2>&1",
    "system calls": "unshare -U true; echo $?",
    "forks": "for i in $(seq 40); do sleep 0.4 & done 2>&1 | head -3; true",
    "memory": "python3 -c 'import time; x = [bytearray(20 << 20) for _ in range(2)]; time.sleep(9)' &"
    "python3 -c 'import time; x = [bytearray(20 << 20) for _ in range(2)]; time.sleep(9)'",
    "shared memory": "python3 -c 'import mmap, time; m = mmap.mmap(-1, 90 << 20); [m.write(bytes(1 << 20)) for _ in range(90)]; time.sleep(9)'",
    "a thread's children": "python3 -c '"
    "import os, threading as t\n"
    "def burn():\n"
    " if os.fork() == 0:\n"
    "  while True: pass\n"
    " os.wait()\n"
    "for _ in range(4): t.Thread(target=burn).start()'; true",
    "one process's memory": "python3 -c 'bytearray(200 << 20)'",
    "cpu": "while :; do :; done & while :; do :; done",
    "file": "head -c 10M /dev/zero > big; echo $?",
    "disk": "rm -f big; for i in $(seq 8); do head -c 1M /dev/zero > part$i; done; exit 1",
}


def interpreter() -> tuple[str, dict[str, str]]:
    """One that another user may start; a virtual environment may lie in root's home."""
    paths = os.pathsep.join(
        [str(Path(longstride.__file__).parents[1]), *[p for p in sys.path if p.endswith("site-packages")]]
    )
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, f"/usr/bin/{version}"):
        command = [*as_nobody(), candidate, "-B", "-c", "import longstride.sandbox.bubblewrap, pyseccomp"]
        if subprocess.run(command, env={"PYTHONPATH": paths}, capture_output=True, check=False).returncode == 0:
            return candidate, {"PYTHONPATH": paths, "PATH": "/usr/bin:/bin"}
    pytest.skip("no interpreter that another user may start sees this code")


def as_nobody() -> list[str]:
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


@pytest.fixture(scope="module")
def told() -> dict[str, list[str]]:
    with arena():
        python, environment = interpreter()
    with tempfile.TemporaryDirectory() as folder:
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        done = subprocess.run(
            [*as_nobody(), python, "-B", "-c", PROGRAM, str(Path(folder) / "scratch")],
            env=environment,
            input=json.dumps(CODE),
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_is_missing_is_said_with_what_would_change_it(told) -> None:
    text = "\n".join(told["missing"])
    for word in ("memory", "pids", "cpu", "bytes and files of a workspace", "share this user's ids", "root"):
        assert word in text


def test_the_host_is_out_of_reach(told) -> None:
    _, _, text = told["identity"]
    assert text.startswith("1000\n")
    assert text.count("No such file or directory") == 2
    assert "Read-only file system" in text
    assert told["system calls"][2].startswith("1\n")


def test_processes_are_bounded(told) -> None:
    assert "Resource temporarily unavailable" in told["forks"][2]


@pytest.mark.parametrize(
    ("name", "status", "limit"),
    [
        ("memory", "limit", "memory_mb=64"),
        ("shared memory", "limit", "memory_mb=64"),
        ("cpu", "limit", "cpu_s=1"),
        ("a thread's children", "limit", "cpu_s=1"),
        ("disk", "limit", "disk_mb=4"),
    ],
)
def test_what_is_looked_at_is_stopped(told, name: str, status: str, limit: str) -> None:
    assert told[name][:2] == [status, limit]


def test_one_process_and_one_file_are_held_by_the_kernel(told) -> None:
    assert "MemoryError" in told["one process's memory"][2]
    assert told["file"][2].startswith("153\n"), "SIGXFSZ"


def test_what_the_agent_closed_is_told_of(told) -> None:
    assert "'\\udcff\\x1b' cannot be read: give its owner the permission" in told["unreadable"]
    assert told["closed"] == "closed/new: its permissions do not allow this"


def test_a_shell_goes_on_and_a_process_cannot_be_kept(told) -> None:
    assert told["bash"] == "kept\n"
    assert told["process"].startswith("web cannot be kept between calls: a sandbox cannot be paused here")


def test_a_daemon_is_gone_when_its_command_is(told) -> None:
    assert told["daemon"][0] == "ok"
    assert told["beats"][0] == told["beats"][2] > 0


def test_a_way_out(told) -> None:
    assert told["egress"] == ["ok", "b'hello'\n", 1]


def test_nothing_is_left(told) -> None:
    assert told["left"] == []


def test_a_folder_of_the_host_is_shown_read_only(told) -> None:
    seen, refused = told["folder"].splitlines()
    assert seen == "/run/longstride/mcp/x/passwd"
    assert "Read-only file system" in refused
