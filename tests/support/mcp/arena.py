"""MCP servers above a real sandbox, for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from longstride.contracts.v1.events import ActionExecuted
from longstride.sandbox.secrets import MemorySecrets
from longstride.tools.executor import Executor
from longstride.tools.mcp.call import survey
from longstride.tools.mcp.catalogue import Catalogue, Server
from longstride.tools.mcp.listing import Listing, ServerTool, digest
from longstride.tools.mcp.register import registered
from tests.support.sandboxes import SMALL, Arena, arena

HERE = Path(__file__).parent
NOTES = Server(command="python3", args=("${folder}/notes_server.py",), folder=HERE, timeout_s=20, idempotency="pure")
GO = ServerTool(name="go", description="Go.", input_schema={"type": "object"})


def pinned(*tools: ServerTool) -> Listing:
    """Tools that nobody was asked for."""
    return Listing(at=datetime(2026, 7, 28, tzinfo=UTC), tools=tools, sha256=digest(tools))


def surveyed(box: Arena, name: str, server: Server) -> Server:
    """With the tools that it lists in a sandbox of this arena."""
    return server.model_copy(update={"pinned": survey(name, server, box.backend, {})})


def with_servers(box: Arena, servers: dict[str, Server], secrets: MemorySecrets | None = None) -> Arena:
    """An executor that knows them."""
    registry = registered(Catalogue(servers=servers))
    return replace(box, executor=Executor(box.backend, box.workspaces, box.artifacts, registry, secrets))


@contextmanager
def notes_arena(name: str) -> Iterator[Arena]:
    """The notes server above a backend."""
    with arena(name=name) as box:
        yield with_servers(box, {"notes": surveyed(box, "notes", NOTES)})


def act(box: Arena, tool: str, before: ActionExecuted | None = None, **options: object) -> ActionExecuted:
    """One call of a task that may use this tool."""
    workspace = before.workspace if before else None
    return box.act(tool, workspace=workspace, tools=(tool, "shell"), **{"limits": SMALL, **options})


def seen(executed: ActionExecuted) -> tuple[str, str]:
    """What the agent is told."""
    assert executed.observation is not None
    return executed.observation.status, executed.observation.text
