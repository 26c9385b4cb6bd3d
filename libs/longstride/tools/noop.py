"""``noop``: nothing, for benchmarks of everything around a tool."""

from longstride.tools.tool import Arguments, Bench, Tool, ToolResult


class NoopArguments(Arguments):
    """``noop`` has no arguments."""


class Noop(Tool[NoopArguments]):
    """Touches no workspace and starts no sandbox."""

    name = "noop"
    description = "Do nothing."
    arguments = NoopArguments
    offered = False
    changes_workspace = False

    def run(self, arguments: NoopArguments, bench: Bench) -> ToolResult:
        """Nothing."""
        return ToolResult("ok", b"done")
