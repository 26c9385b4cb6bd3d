"""``artifact_get``: something of the task's session into the workspace."""

from typing import Annotated

from pydantic import Field, StringConstraints

from longstride.tools.shelf import NotOnShelf
from longstride.tools.tool import Arguments, Bench, Tool, ToolResult
from longstride.tools.write_file import written

MEBIBYTE = 1 << 20


class ArtifactGetArguments(Arguments):
    """Arguments of ``artifact_get``."""

    key: Annotated[str, StringConstraints(min_length=1, max_length=512)]
    """The key, as artifact_put or a shortened output gave it."""
    size: Annotated[int, Field(ge=0)]
    """Its bytes, as they were given with the key."""
    path: Annotated[str, StringConstraints(min_length=1, max_length=1024)]
    """Where the workspace gets it; a file that is there is replaced."""


class ArtifactGet(Tool[ArtifactGetArguments]):
    """Only what a task of the same session put, or what was shown of its outputs in part."""

    name = "artifact_get"
    description = "Lay a kept file, or all of an output that was shown in part, into the workspace."
    arguments = ArtifactGetArguments
    example = {"key": "session_1/file/0f3a…", "size": 2048, "path": "model.bin"}
    offered = False
    time_limit_s = 60.0

    def run(self, arguments: ArtifactGetArguments, bench: Bench) -> ToolResult:
        """Fetch it and write it."""
        most = bench.limits.disk_mb * MEBIBYTE
        if arguments.size > most:
            return ToolResult("failed", f"{arguments.size} bytes do not fit: the workspace holds {most}".encode())
        try:
            data = bench.shelf.get(arguments.key, arguments.size)
        except NotOnShelf as refused:
            return ToolResult("failed", str(refused).encode())
        return written(bench, arguments.path, data)
