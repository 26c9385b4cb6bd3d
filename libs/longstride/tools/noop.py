"""``noop``: nothing, for benchmarks of everything around a tool."""

from longstride.tools.tool import Arguments, Bench, Tool, ToolResult


class NoopArguments(Arguments):
    """Nothing that matters."""

    turn: int | None = None
    """Tells calls apart: who repeats the same call is stuck."""


class Noop(Tool[NoopArguments]):
    """Touches no workspace and starts no sandbox."""

    name = "noop"
    description = "Do nothing."
    arguments = NoopArguments
    example = {"turn": 1}
    offered = False
    changes_workspace = False

    def run(self, arguments: NoopArguments, bench: Bench) -> ToolResult:
        """Nothing."""
        return ToolResult("ok", b"done")
