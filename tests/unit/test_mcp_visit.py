"""A conversation with a scripted server, above the in-memory sandbox."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import Command, Spec, Volume
from longstride.sandbox.errors import ExecutionCancelled, IsolationUnavailable, SandboxFailed
from longstride.sandbox.memory import MemorySandbox, Process
from longstride.tools.mcp.session import Session
from longstride.tools.mcp.visit import Visit, visit
from tests.support.eventually import eventually

LIMITS = SandboxLimits(wall_s=5)
ABOUT = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "scripted", "version": "3"}}
GO = {"name": "go", "description": "Go.", "inputSchema": {"type": "object"}}
Reply = Callable[[str, dict], dict]


def reply(method: str, params: dict) -> dict:
    match method:
        case "initialize":
            return {"result": ABOUT}
        case "tools/list":
            second = {"tools": [{**GO, "name": "stop"}]}
            return {"result": second if params.get("cursor") == "2" else {"tools": [GO], "nextCursor": "2"}}
        case "tools/call":
            return {"result": {"content": [{"type": "text", "text": json.dumps(params["arguments"])}]}}
    return {"error": {"code": -32601, "message": f"no {method}"}}


def server(answer: Reply, heard: list[dict]) -> Callable[[Process], int]:
    def run(process: Process) -> int:
        while line := process.read_line():
            heard.append(message := json.loads(line))
            if "id" in message and "method" in message:
                said = answer(message["method"], message.get("params", {}))
                process.print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}))
        return 0

    return run


@dataclass
class World:
    backend: MemorySandbox
    volume: Volume
    heard: list[dict]
    cancelled: threading.Event

    def visit(self, script: Callable[[Session], object], program: str = "good") -> Visit:
        return visit(self.backend, Command((program,), self.volume, LIMITS), script, self.cancelled)


def asking(process: Process) -> int:
    """A server that wants something of its client before it answers."""
    initialize = json.loads(process.read_line())
    for number, method in enumerate(("sampling/createMessage", "roots/list", "elicitation/create", "ping", "no/such")):
        process.print(json.dumps({"jsonrpc": "2.0", "id": f"q{number}", "method": method, "params": {}}))
        (process.workspace / f"{number}").write_bytes(process.read_line())
    process.print(json.dumps({"jsonrpc": "2.0", "id": initialize["id"], "result": ABOUT}))
    return 0


def modern(method: str, params: dict) -> dict:
    """A server that knows no handshake, as from 2026-07-28 on."""
    match method:
        case "initialize":
            data = {"supported": ["2026-07-28"], "requested": "2025-11-25"}
            return {"error": {"code": -32022, "message": "unsupported", "data": data}}
        case "server/discover":
            about = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"}
            return {"result": {**about, "ttlMs": 0, "cacheScope": "private"}}
        case "tools/list":
            return {"result": {"tools": [GO], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}}
    said = reply(method, params)
    return {"result": {**said["result"], "resultType": "complete"}}


@pytest.fixture
def world(tmp_path: Path) -> World:
    heard: list[dict] = []
    programs = {
        "good": server(reply, heard),
        "modern": server(modern, heard),
        "asking": asking,
        "hanging": lambda process: process.work(60) or 0,
    }
    backend = MemorySandbox(tmp_path, programs)
    return World(backend, backend.volumes.create(LIMITS), heard, threading.Event())


async def everything(session: Session) -> tuple[str, list[str], str]:
    await session.greet()
    names = [tool.name for tool in await session.tools()]
    result = await session.call("go", {"far": True})
    return session.protocol, names, result.content[0].text


def test_greeting_listing_calling(world: World) -> None:
    made = world.visit(everything)
    assert made.answer == ("2025-11-25", ["go", "stop"], '{"far": true}')
    assert made.trouble is None
    assert (made.execution.exit_code, made.execution.killed) == (0, False), "its input was closed, and it ended"
    assert [message["method"] for message in world.heard] == [
        "initialize",
        "notifications/initialized",
        "tools/list",
        "tools/list",
        "tools/call",
    ]
    assert world.heard[0]["params"]["capabilities"] == {}, "nothing is offered to a server"
    assert world.heard[0]["params"]["clientInfo"]["name"] == "longstride"


def test_a_server_without_a_handshake(world: World) -> None:
    made = world.visit(everything, "modern")
    assert made.trouble is None
    assert made.answer == ("2026-07-28", ["go"], '{"far": true}')


async def greet(session: Session) -> str:
    await session.greet()
    return session.server


def test_what_a_server_asks_for_is_declined(world: World) -> None:
    made = world.visit(greet, "asking")
    assert made.answer == "scripted 3"
    answers = [json.loads((world.volume.path / f"{number}").read_bytes()) for number in range(5)]
    assert [answer["id"] for answer in answers] == ["q0", "q1", "q2", "q3", "q4"]
    assert ["error" in answer for answer in answers] == [True, True, True, False, True]


def test_a_cancelled_visit_raises(world: World) -> None:
    thread = threading.Thread(target=lambda: (eventually(lambda: world.heard), world.cancelled.set()))
    thread.start()

    async def script(session: Session) -> None:
        await session.greet()
        while True:
            await session.tools()

    with pytest.raises(ExecutionCancelled):
        world.visit(script)
    thread.join()


def test_a_sandbox_that_breaks_is_infrastructure(world: World) -> None:
    with pytest.raises(SandboxFailed, match="no program 'absent'"):
        world.visit(greet, "absent")


def test_a_folder_needs_a_backend_that_shows_it(world: World, tmp_path: Path) -> None:
    folders = {"mcp/x": tmp_path}
    spec = Command(("good",), world.volume, LIMITS, folders=folders)
    made = visit(world.backend, spec, greet, world.cancelled)
    assert made.answer == "scripted 3"
    capabilities = world.backend.capabilities()
    with pytest.raises(
        IsolationUnavailable, match="would be shown in a sandbox, and the memory backend shows the workspace"
    ):
        replace(capabilities, folders=False).admit(Spec(LIMITS, folders=folders))
