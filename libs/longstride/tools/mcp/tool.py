"""A tool of an MCP server, as any other tool. What the SDK is needed for is in ``call``, which is loaded by whoever carries one out."""

import json
from collections.abc import Mapping
from functools import cached_property

from pydantic import JsonValue

from longstride.contracts.v1.action import ToolSpec
from longstride.tools.mcp.catalogue import Server
from longstride.tools.mcp.listing import Listing, ServerTool, called
from longstride.tools.mcp.shape import TooMuchWork, faults
from longstride.tools.observation import printable
from longstride.tools.tool import Arguments, Bench, InvalidArguments, Tool, ToolResult


class McpArguments(Arguments):
    """Whatever fits the pinned schema."""

    values: dict[str, JsonValue]


class McpTool(Tool[McpArguments]):
    """Starts its server for each call. Policies see it as it was pinned."""

    arguments = McpArguments
    offered = False
    sends = False
    """The task's way out is not the server's; of the server's own its ``idempotency`` tells."""

    def __init__(self, server_name: str, server: Server, pinned: Listing, tool: ServerTool) -> None:
        """
        Args:
            server_name: the server's, in the catalogue.
            server: how it is started.
            pinned: all its tools, as a person agreed to them.
            tool: which of them this is.
        """
        self.server_name, self.server, self.pinned, self.tool = server_name, server, pinned, tool
        self.name = called(server_name, tool.name)
        self.description = _described(server_name, tool)
        self.idempotency = server.idempotency
        self.time_limit_s = server.timeout_s
        self.secrets = server.secrets
        self.network = (
            ", ".join(map(str, server.egress.rules)) if server.egress else "none, whatever the task may reach"
        )

    @cached_property
    def spec(self) -> ToolSpec:
        """As a policy sees it."""
        return ToolSpec(name=self.name, description=self.description, parameters=self.tool.input_schema)

    def parse(self, arguments: Mapping[str, JsonValue]) -> McpArguments:
        """Check a call's arguments against the pinned schema.

        Raises:
            InvalidArguments: naming each field that does not fit, and what it must be.
        """
        try:
            found = faults(self.tool.input_schema, dict(arguments))
        except TooMuchWork as error:
            raise InvalidArguments(f"{self.name}: its arguments cannot be checked: {error}") from error
        if found:
            fields = json.dumps(self.tool.input_schema.get("properties", {}), ensure_ascii=False)
            raise InvalidArguments(f"{self.name}: {'; '.join(found)}. Its arguments are {fields}")
        return McpArguments(values=dict(arguments))

    def run(self, arguments: McpArguments, bench: Bench) -> ToolResult:
        """Start the server, ask it, and end it."""
        from longstride.tools.mcp.call import call

        return call(self, arguments.values, bench)


def _described(server_name: str, tool: ServerTool) -> str:
    """Servers need not describe their tools; policies cannot do without."""
    return printable(tool.description.strip().encode()) or f"The tool {tool.name} of the MCP server {server_name}."
