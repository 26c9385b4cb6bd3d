"""MCP servers that mean harm: whatever they do, the call is over, nothing of them is left, and the next call is served."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from longstride.contracts.v1.limits import Allowance, Share
from longstride.sandbox import cgroup
from longstride.sandbox.mounts import mounts_below
from longstride.sandbox.scratch import _marked, reap
from longstride.tools.mcp.catalogue import CatalogueUnusable, Server
from longstride.tools.mcp.listing import ServerTool
from tests.support.eventually import eventually
from tests.support.mcp.arena import GO, act, pinned, seen, surveyed, with_servers
from tests.support.sandboxes import SMALL, Arena, arena

HEAD = r"""
import json, os, sys, time
def say(**message): sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n"); sys.stdout.flush()
def hear(): return json.loads(sys.stdin.readline())
GO = {"name": "go", "description": "Go.", "inputSchema": {"type": "object"}}
ABOUT = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "evil", "version": "1"}}
def greet(): say(id=hear()["id"], result=ABOUT); hear()
def listing(): say(id=hear()["id"], result={"tools": [GO]})
def ok(id): say(id=id, result={"content": [{"type": "text", "text": "fine"}]})
"""
CALLED = HEAD + "greet(); listing(); call = hear()\n"
PLEASE = '{"jsonrpc":"2.0","id":%d,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}\n'
SHORT = SMALL.model_copy(update={"wall_s": 1.5})

# ``None``: a flood may also meet the sandbox's own limit before it is given up.
PAYLOADS = {
    "no end of a line": (
        "os.write(1, b'x' * (1 << 16)) and None\nwhile True: os.write(1, b'x' * 65536)",
        None,
        "more than 4 MiB",
    ),
    "no end of messages": (
        'while True: sys.stdout.write(\'{"jsonrpc":"2.0","method":"a"}\\n\')',
        None,
        "more than 5000",
    ),
    "no end of noise": ("while True: sys.stdout.write('!\\n')", None, "more than 5000 messages"),
    "no end of errors": ("while True: sys.stderr.write('!' * 65536)", "limit", "stopped by output_mb=16"),
    "no end of questions": (
        f"n = 9\nwhile True: n += 1; sys.stdout.write({PLEASE!r} % n)",
        None,
        "more than 5000",
    ),
    "answers to nobody": (
        "say(id=999, result={}); say(id=call['id'] + 1, result={}); time.sleep(60)",
        "timeout",
        "tools/call",
    ),
    "an answer of another shape": (
        "say(id=call['id'], result={'content': 'x'})",
        "failed",
        "not what the protocol says",
    ),
    "a result that is no object": ("say(id=call['id'], result=[1]); time.sleep(60)", "timeout", "tools/call"),
    "a deep answer": (
        'print(\'{"jsonrpc":"2.0","id":%d,"result":\' % call[\'id\'] + \'[\' * 20000, flush=True); time.sleep(60)',
        "timeout",
        "tools/call",
    ),
    "a wide answer": (
        'print(\'{"jsonrpc":"2.0","id":%d,"result":{"content":[\' % call[\'id\'] + \'{},\' * 1000000 + \'{}]}}\', flush=True)',
        "failed",
        "more than 30000 values",
    ),
    "a wrong answer in many places": (
        "say(id=call['id'], result={'content': [{}] * 14000})",
        "failed",
        "it is wrong in ",
    ),
    "a deaf server": (
        f"n = 9\nwhile n < 4000: n += 1; sys.stdout.write({PLEASE!r} % n)\nsys.stdout.flush(); time.sleep(60)",
        "timeout",
        "tools/call",
    ),
    "output closed": ("os.close(1); time.sleep(60)", "timeout", "tools/call"),
    "death by its own hand": ("os.kill(os.getpid(), 9)", "failed", "exit code 137"),
    "memory without end": ("x = []\nwhile True: x.append(bytearray(1 << 20))", "limit", "memory_mb=96"),
    "processes without end": ("while True:\n  try: os.fork()\n  except OSError: pass", None, "stopped by"),
    "an error of a megabyte": (
        "say(id=call['id'], error={'code': 1, 'message': 'x' * (1 << 20)})",
        "failed",
        "error 1: xxx",
    ),
    "an error that is none": ("say(id=call['id'], error='no'); time.sleep(60)", "timeout", "tools/call"),
}


@pytest.fixture(scope="module", params=["bubblewrap", "runc"])
def box(request: pytest.FixtureRequest) -> Iterator[Arena]:
    with arena(name=request.param) as made:
        yield made


def evil(code: str, *tools: ServerTool) -> dict[str, Server]:
    return {"evil": Server(command="python3", args=("-c", code), pinned=pinned(*(tools or (GO,))), idempotency="pure")}


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_hostile_answer_ends_its_own_call_alone(box: Arena, payload: str) -> None:
    code, status, part = PAYLOADS[payload]
    # What is stopped by a count, and not by the clock, may take a slow machine a while to count.
    bounds = SMALL if part.startswith("more than") else SHORT
    told, text = seen(act(with_servers(box, evil(CALLED + code)), "evil__go", limits=bounds))
    assert status in (None, told), text
    assert part in text
    assert box.left_over() == set()
    assert seen(act(with_servers(box, evil(CALLED + "ok(call['id'])")), "evil__go")) == ("ok", "fine")


EARLY = {
    "answers before questions": (
        "say(id=1, result=ABOUT); say(id=2, result={'tools': [GO]}); time.sleep(60)",
        "came to nothing at",  # an answer may be early by a little alone
    ),
    "silence": ("time.sleep(60)", "initialize"),
    "an old revision": (
        "say(id=hear()['id'], result={**ABOUT, 'protocolVersion': '1999-01-01'}); time.sleep(60)",
        "initialize",
    ),
    "no list": ("greet(); time.sleep(60)", "tools/list"),
    "a list without end": (
        "greet()\nwhile True: m = hear(); say(id=m['id'], result={'tools': [], 'nextCursor': 'again'})",
        "tools/list",
    ),
    "a long list": ("greet(); say(id=hear()['id'], result={'tools': [GO] * 5000}); time.sleep(60)", "tools/list"),
    "a tool of another shape": ("greet(); say(id=hear()['id'], result={'tools': [{'name': 3}]})", "tools/list"),
    "a description without end": (
        "greet(); say(id=hear()['id'], result={'tools': [{**GO, 'description': 'x' * 9999}]})",
        "tools/list",
    ),
    "nothing at all": ("greet(); say(id=hear()['id'], result={'tools': []}); time.sleep(60)", "not called"),
}


@pytest.mark.parametrize("payload", EARLY)
def test_a_server_that_does_not_come_so_far_is_told_of_with_its_phase(payload: str) -> None:
    code, phase = EARLY[payload]
    with arena() as plain:
        told, text = seen(act(with_servers(plain, evil(HEAD + code)), "evil__go", limits=SHORT))
        assert told in ("failed", "timeout", "denied")
        assert phase in text
        assert plain.left_over() == set()


def test_whoever_adds_it_is_told_the_same() -> None:
    code = HEAD + "greet(); say(id=hear()['id'], result={'tools': []}); time.sleep(60)"
    with arena() as plain, pytest.raises(CatalogueUnusable, match="came to nothing at tools/list: it has no tools"):
        surveyed(plain, "evil", Server(command="python3", args=("-c", code)))


def test_a_server_that_does_not_go_is_killed_and_its_answer_kept(box: Arena) -> None:
    code = CALLED + "import signal; signal.signal(15, signal.SIG_IGN); ok(call['id']); time.sleep(3600)"
    assert seen(act(with_servers(box, evil(code)), "evil__go")) == ("ok", "fine")
    assert box.left_over() == set()


CHILD = """
import sys
from pathlib import Path
from longstride.sandbox.bubblewrap import BubblewrapSandbox
from longstride.tools.mcp.call import survey
from longstride.tools.mcp.catalogue import Server
backend = BubblewrapSandbox(Path(sys.argv[1]))
survey("slow", Server(command="sleep", args=("3600",), folder=Path(sys.argv[2])), backend, {})
"""


def test_nothing_is_left_of_a_server_whose_executor_was_killed() -> None:
    with arena(), tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        (folder / "shown").mkdir()
        for made in (folder, folder / "shown"):
            made.chmod(0o755)
        scratch = folder / "scratch"
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(scratch), str(folder / "shown")], cwd=Path.cwd())
        with child:
            eventually(lambda: scratch.exists() and any(map(servers_of, owners(scratch))))
            names = owners(scratch)
            os.kill(child.pid, signal.SIGKILL)
        eventually(lambda: not any(map(_marked, names)))
        reap(scratch)
        eventually(lambda: owners(scratch) == [])
        assert mounts_below(folder) == []
        assert [path for h in cgroup.discover() for name in names for path in h.base.glob(f"{name}-*")] == []
        assert (folder / "shown").is_dir()


def owners(scratch: Path) -> list[str]:
    return [path.name for path in scratch.glob("ls-*")]


def servers_of(owner: str) -> list[int]:
    """Processes of a sandbox that runs ``sleep 3600``."""
    if not any(_command_line(path) == b"sleep\x003600\0" for path in Path("/proc").glob("[0-9]*")):
        return []
    return [pid for pid in _marked(owner) if b"bwrap" in _command_line(Path("/proc", str(pid)))]


def _command_line(process: Path) -> bytes:
    """Nothing where it has gone."""
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def test_a_server_uses_up_its_tasks_budget_and_no_more(box: Arena) -> None:
    cut = with_servers(box, evil(CALLED + "time.sleep(60)"))
    left = Allowance(tool_s=Share(most=30, left=1))
    executed = act(cut, "evil__go", allowance=left)
    status, text = seen(executed)
    assert status == "timeout"
    assert "stopped by the task's tool_s=30 (this call had the 1 s that were left)" in text
    assert executed.usage.wall_ms >= 1000
    spent = act(cut, "evil__go", allowance=Allowance(tool_s=Share(most=30, left=0)))
    assert "the task's tool_s=30" in seen(spent)[1]
    assert spent.usage.wall_ms == 0
