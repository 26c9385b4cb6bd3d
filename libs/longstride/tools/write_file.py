"""``write_file``: a whole text file, or more at its end."""

import errno
from typing import Annotated

from pydantic import StringConstraints

from longstride.sandbox.files import FileRefused
from longstride.tools.tool import Arguments, Bench, Tool, ToolResult


class WriteFileArguments(Arguments):
    """Arguments of ``write_file``."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=1024)]
    """A file in the workspace; directories on the way are made."""
    content: str
    """The text."""
    append: bool = False
    """Add to the end instead of replacing what is there."""


class WriteFile(Tool[WriteFileArguments]):
    """Writes from the host's side: no sandbox is started."""

    name = "write_file"
    description = "Write a text file of the workspace: replace it, make it, or append to it."
    arguments = WriteFileArguments
    example = {"path": "notes.txt", "content": "done\n"}
    time_limit_s = 30.0

    def run(self, arguments: WriteFileArguments, bench: Bench) -> ToolResult:
        """Write it."""
        return written(bench, arguments.path, arguments.content.encode(), append=arguments.append)


def written(bench: Bench, path: str, data: bytes, *, append: bool = False) -> ToolResult:
    """A file after its bytes were written; a full workspace is the agent's limit, a full host is nobody's fault here and raises."""
    try:
        size = bench.workspace.files.write(bench.inside(path), data, append=append)
    except FileRefused as refused:
        return ToolResult("failed", str(refused).encode())
    except OSError as error:
        if error.errno != errno.ENOSPC or not bench.workspace.volume.bounded:
            raise
        limit = bench.backend.volumes.exhausted(bench.workspace.volume, bench.limits)
        return ToolResult("limit", b"the workspace is full", limit=limit or f"disk_mb={bench.limits.disk_mb}")
    return ToolResult("ok", f"{path} holds {size} bytes".encode())
