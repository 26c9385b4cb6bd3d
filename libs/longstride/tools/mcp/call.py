"""Asking a server: one call for an agent, or all it offers for the operator who adds it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import mcp_types as types
from pydantic import JsonValue

from longstride.contracts.v1.action import ObservationStatus
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import NEVER, Command, Execution, SandboxBackend, Volume
from longstride.sandbox.secrets import mounted
from longstride.tools.mcp.catalogue import CatalogueUnusable, Server
from longstride.tools.mcp.content import Collected, misfit
from longstride.tools.mcp.listing import Listing, changes, digest
from longstride.tools.mcp.session import Session, Trouble
from longstride.tools.mcp.tool import McpTool
from longstride.tools.mcp.visit import Visit, visit
from longstride.tools.observation import printable
from longstride.tools.tool import Bench, ToolResult, ending, of_execution

STDERR_SHOWN = 2048
OTHERS_ENTER = 0o005


@dataclass(frozen=True, slots=True)
class Answered:
    """What the server said: a result, or tools that are not those that were pinned."""

    changed: tuple[str, ...] = ()
    result: types.CallToolResult | None = None


def call(tool: McpTool, arguments: Mapping[str, JsonValue], bench: Bench) -> ToolResult:
    """Start the tool's server in a sandbox with the task's workspace, see that its tools are those that were pinned, and call it.

    Raises:
        ExecutionCancelled: it was cancelled from outside.
        IsolationUnavailable: the backend cannot show the server's folder, or has no way out.
        SandboxFailed: the sandbox broke; the same call can be made again.
    """
    if why := _absent(tool.server_name, tool.server):
        return ToolResult("failed", why.encode())

    async def script(session: Session) -> Answered:
        await session.greet()
        if changed := tuple(changes(tool.pinned.tools, await session.tools())):
            return Answered(changed)
        return Answered(result=await session.call(tool.tool.name, dict(arguments)))

    bench.backend.capabilities().require_egress(tool.server.egress)
    start = bench.bounded(_command(tool, bench))
    if isinstance(start, Execution):
        return of_execution(start)
    made = visit(bench.backend, start, script, bench.cancelled)
    bench.connections += made.execution.connections
    return _told(tool, bench, replace(made, execution=bench.charged(start, made.execution)))


def survey(name: str, server: Server, backend: SandboxBackend, secrets: Mapping[str, bytes]) -> Listing:
    """All that a server offers now.

    Args:
        name: the server's, in the catalogue.
        server: how it is started.
        backend: where.
        secrets: the values of those that it names.

    Raises:
        CatalogueUnusable: it does not start, or does not answer as a server does.
        IsolationUnavailable, SandboxFailed: as ``SandboxBackend.run``.
    """
    if why := _absent(name, server):
        raise CatalogueUnusable(why)

    async def script(session: Session) -> Listing:
        await session.greet()
        tools = tuple(await session.tools())
        if not tools:
            raise Trouble("tools/list", "it has no tools")
        about = {"at": datetime.now(UTC), "server": session.server, "protocol": session.protocol}
        return Listing(tools=tools, sha256=digest(tools), **about)

    limits = SandboxLimits(wall_s=server.timeout_s)
    backend.capabilities().require_egress(server.egress)
    volume = backend.volumes.create(limits)
    try:
        made = visit(backend, command(name, server, secrets, volume, limits), script, NEVER)
    finally:
        backend.volumes.destroy(volume)
    if made.answer is None:
        raise CatalogueUnusable(_failure(name, made)[1])
    return made.answer


def command(
    name: str, server: Server, secrets: Mapping[str, bytes], workspace: Volume, limits: SandboxLimits
) -> Command:
    """How a server is started: not in the workspace, for what an agent wrote there must not become a part of the program."""
    return Command(
        server.argv(name),
        workspace,
        limits,
        env=server.variables(name, secrets),
        files=mounted(secrets),
        folders=server.folders(name),
        egress=server.egress,
        cwd=server.home(name),
    )


def _command(tool: McpTool, bench: Bench) -> Command:
    """It sees its own secrets alone, whatever the task's other calls may see."""
    own = {key: bench.secrets[key] for key in tool.secrets}
    start = command(tool.server_name, tool.server, own, bench.workspace.volume, bench.limits)
    return replace(start, isolation=bench.isolation, links=bench.environment.links)


def _absent(name: str, server: Server) -> str | None:
    """Why it cannot be started on this host: known before a sandbox is made."""
    if server.folder is None:
        return None
    start = f"the MCP server {name} cannot be started here: its folder {server.folder}"
    if not server.folder.is_dir() or not os.access(server.folder, os.R_OK | os.X_OK):
        return f"{start} is not on this host, or closed to the executor"
    if os.geteuid() == 0 and server.folder.stat().st_mode & OTHERS_ENTER != OTHERS_ENTER:
        return f"{start} is closed to others, and sandboxes have ids of their own: chmod -R o+rX {server.folder}"
    return None


def _told(tool: McpTool, bench: Bench, made: Visit[Answered]) -> ToolResult:
    usage = made.execution.usage
    if made.answer is None:
        status, text = _failure(tool.server_name, made)
        return ToolResult(status, text.encode(), made.execution.exit_code, made.execution.limit, usage)
    if made.answer.changed:
        return ToolResult("denied", _changed(tool.server_name, made.answer.changed).encode(), usage=usage)
    assert made.answer.result is not None, "a server that changed nothing was called"
    return _result(tool, bench, made.answer.result, made)


def _result(tool: McpTool, bench: Bench, result: types.CallToolResult, made: Visit[Answered]) -> ToolResult:
    collected = Collected(tool, bench)
    collected.take(result)
    wrong = misfit(tool, result)
    notes = [f"[{wrong}]"] if wrong else []
    if made.execution.limit:
        notes.append(f"[after its answer it was {ending(made.execution)}]")
    text = "\n".join(part for part in (collected.text, *notes) if part)
    status: ObservationStatus = "failed" if result.is_error or wrong else "ok"
    return ToolResult(
        status, text.encode(errors="replace"), usage=made.execution.usage, artifacts=tuple(collected.kept)
    )


def _changed(name: str, changed: tuple[str, ...]) -> str:
    return (
        f"the MCP server {name} is not called: its tools are not those that the operator agreed to ({'; '.join(changed[:8])}). "
        f"The operator sees what changed with `longstride mcp check {name}`, and agrees to it with `longstride mcp add {name}`."
    )


def _failure(name: str, made: Visit[Any]) -> tuple[ObservationStatus, str]:
    """Status and text of a visit that came to nothing."""
    execution, trouble = made.execution, made.trouble
    late = execution.status == "timeout"
    why = "it did not answer before its time was over" if late else str(trouble) if trouble else "it never listened"
    phase = trouble.phase if trouble else "start"
    lines = [f"the MCP server {name} came to nothing at {phase}: {why}", ending(execution)]
    if made.noise:
        lines.append(f"it printed lines that are no messages, the first: {made.noise}")
    if execution.stderr:
        lines.append(f"its standard error ends:\n{printable(execution.stderr[-STDERR_SHOWN:])}")
    text = "\n".join(line for line in lines if line)
    if late or (trouble is not None and trouble.late):
        return "timeout", text
    return "limit" if execution.limit else "failed", text
