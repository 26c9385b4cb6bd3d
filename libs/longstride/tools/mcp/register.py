"""The tools of a catalogue's servers beside the builtin ones. A name clash or a schema that cannot be used is refused here."""

from collections.abc import Iterator
from pathlib import Path

from longstride.tools.mcp.catalogue import Catalogue, CatalogueUnusable, Server, read
from longstride.tools.mcp.listing import ServerTool
from longstride.tools.registry import Registry, builtin_tools


def offered_tools(path: Path | None) -> Registry:
    """All the tools there are.

    Args:
        path: the catalogue; ``None``: there are the builtin ones alone.

    Raises:
        CatalogueUnusable: the text says which server and tool, and why.
    """
    return registered(read(path)) if path is not None else builtin_tools()


def registered(catalogue: Catalogue) -> Registry:
    """The builtin tools and those of the servers.

    Raises:
        CatalogueUnusable: as ``offered_tools``.
    """
    if not catalogue.servers:
        return builtin_tools()
    from longstride.tools.mcp.tool import McpTool

    made = []
    for name, server in catalogue.servers.items():
        if server.pinned is None:
            raise CatalogueUnusable(f"nobody knows the tools of the MCP server {name}: run `longstride mcp add {name}`")
        made += [McpTool(name, server, server.pinned, tool) for tool in _callable(name, server, server.pinned.tools)]
    try:
        return builtin_tools().extended(made)
    except ValueError as error:
        raise CatalogueUnusable(
            f"MCP servers: {error}. A tool is left out with the list `tools` of its server (`longstride mcp add --only`)"
        ) from error


def _callable(name: str, server: Server, tools: tuple[ServerTool, ...]) -> Iterator[ServerTool]:
    """Those that may be called and can be checked."""
    known = {tool.name: tool for tool in tools}
    if absent := [tool for tool in server.tools or () if tool not in known]:
        raise CatalogueUnusable(f"the MCP server {name} has no tool {absent[0]!r}; it has {', '.join(known)}")
    for tool in tools if server.tools is None else [known[tool] for tool in dict.fromkeys(server.tools)]:
        _require_schemas(name, tool)
        yield tool


def _require_schemas(name: str, tool: ServerTool) -> None:
    from longstride.tools.mcp.shape import schema_objection

    for what, schema in (("arguments", tool.input_schema), ("result", tool.output_schema)):
        if schema is not None and (why := schema_objection(schema)):
            raise CatalogueUnusable(
                f"the MCP server {name}: the schema of {tool.name}'s {what} is not valid: {why}. "
                "The tool is left out with the list `tools` of its server (`longstride mcp add --only`)"
            )


def preload(registry: Registry) -> None:
    """Load what calls of MCP servers need, where there are any: a second that the first call would pay.

    Raises:
        CatalogueUnusable: it is not installed.
    """
    from longstride.tools.mcp.tool import McpTool

    if not any(isinstance(registry.get(name), McpTool) for name in registry.names):
        return
    try:
        import longstride.tools.mcp.call  # noqa: F401
    except ModuleNotFoundError as error:
        raise CatalogueUnusable(f"MCP servers need the package {error.name}: pip install 'longstride[mcp]'") from error
