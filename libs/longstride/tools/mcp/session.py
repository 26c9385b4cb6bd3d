"""What is said to a server, through the SDK's ``ClientSession``: greet it, ask for its tools, call one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, Literal

import anyio
import mcp_types as types
from mcp import ClientSession, MCPError
from pydantic import TypeAdapter, ValidationError

from longstride.contracts.envelope import explain
from longstride.tools.mcp.listing import MOST_TOOLS, ServerTool

HANDSHAKE_S = 30.0
"""For a server to start and answer ``initialize``, and then for each page of its tools."""
MOST_PAGES = 16
MOST_TOLD = 1000
MOST_FAULTS = 32
CLOSED = (types.CONNECTION_CLOSED, "Connection closed")
"""The SDK's own word; servers send the same code with words of theirs."""
RESULT: TypeAdapter[types.CallToolResult] = TypeAdapter(types.CallToolResult)

Phase = Literal["start", "initialize", "tools/list", "tools/call"]


class Trouble(Exception):
    """The conversation came to nothing; the text says how."""

    def __init__(self, phase: Phase, why: str, *, late: bool = False) -> None:
        """``late``: it took too long."""
        super().__init__(why)
        self.phase: Phase = phase
        self.late = late


class Session:
    """One conversation. The server may ask for nothing: sampling, elicitation and roots are not offered, and asking for them is
    answered with an error."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self.phase: Phase = "start"

    async def greet(self) -> None:
        """``initialize``; ``server/discover`` where the server knows only revisions without a handshake.

        Raises:
            Trouble: it does not answer as a server does.
        """
        async with self._in("initialize", HANDSHAKE_S):
            try:
                await self._session.initialize()
            except MCPError as error:
                if error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
                    raise
                await self._session.discover()

    @property
    def server(self) -> str:
        """Its name and version, in its own words."""
        info = self._session.server_info
        return f"{info.name} {info.version}"[:256] if info else ""

    @property
    def protocol(self) -> str:
        """The revision that is spoken."""
        return self._session.protocol_version or ""

    async def tools(self) -> list[ServerTool]:
        """All pages of ``tools/list``.

        Raises:
            Trouble: they have no end, or cannot be understood.
        """
        found: list[ServerTool] = []
        params = None
        for _ in range(MOST_PAGES):
            async with self._in("tools/list", HANDSHAKE_S):
                page = await self._session.list_tools(params=params)
                found += map(_understood, page.tools)
            if len(found) > MOST_TOOLS:
                raise Trouble("tools/list", f"it has more than {MOST_TOOLS} tools")
            if page.next_cursor is None:
                return found
            params = types.PaginatedRequestParams(cursor=page.next_cursor)
        raise Trouble("tools/list", f"its list of tools has more than {MOST_PAGES} pages")

    async def call(self, tool: str, arguments: dict[str, Any]) -> types.CallToolResult:
        """``tools/call``. Not the session's own method: that one checks the result against a schema of the server's without
        bounds, in this process.

        Raises:
            Trouble: no result comes of it. A tool's own error is a result.
        """
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=arguments))
        async with self._in("tools/call", None):
            return await self._session.send_request(request, RESULT)
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def _in(self, phase: Phase, seconds: float | None) -> AsyncIterator[None]:
        self.phase = phase
        try:
            with anyio.fail_after(seconds):
                yield
        except TimeoutError as error:
            raise Trouble(phase, f"it did not answer within {seconds:g} s", late=True) from error
        except MCPError as error:
            raise Trouble(phase, _refusal(error)) from error
        except ValidationError as error:
            raise Trouble(phase, f"its answer is not what the protocol says: {_misfit(error)}") from None
        except RuntimeError as error:
            raise Trouble(phase, str(error)[:MOST_TOLD]) from error


def open_session(read: Any, write: Any) -> ClientSession:
    """The SDK's session over a pair of streams, which offers nothing."""
    return ClientSession(
        read, write, client_info=types.Implementation(name="longstride", version=version("longstride"))
    )


def _refusal(error: MCPError) -> str:
    if (error.code, error.message) == CLOSED:
        return "it ended, or closed its output, without an answer"
    return f"it answered with error {error.code}: {error.message[:MOST_TOLD]}"


def _misfit(error: ValidationError) -> str:
    """In words, where they are few: an answer may be wrong in a hundred thousand places."""
    count = error.error_count()
    return explain(error)[:MOST_TOLD] if count <= MOST_FAULTS else f"it is wrong in {count} places"


def _understood(tool: types.Tool) -> ServerTool:
    hints = tool.annotations.model_dump(mode="json", by_alias=True, exclude_none=True) if tool.annotations else None
    return ServerTool(
        name=tool.name,
        description=tool.description or "",
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=hints,
    )
