"""``artifact_put``: a file of the workspace into the task's session."""

from typing import Annotated

from pydantic import StringConstraints

from longstride.sandbox.files import FileRefused, relative
from longstride.tools.shelf import NotKept
from longstride.tools.tool import Arguments, Bench, Tool, ToolResult

MEBIBYTE = 1 << 20


class ArtifactPutArguments(Arguments):
    """Arguments of ``artifact_put``."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=255)]
    """A file in the workspace."""


class ArtifactPut(Tool[ArtifactPutArguments]):
    """Keeps a copy as it is now, whatever becomes of the workspace. Repeated, it gives the same key."""

    name = "artifact_put"
    description = (
        "Keep a copy of a file of the workspace with the task's results, where later changes do not reach it. "
        "Gives the key under which artifact_get finds it, in this and in later tasks of the session."
    )
    arguments = ArtifactPutArguments
    example = {"path": "model.bin"}
    idempotency = "keyed"
    offered = False
    changes_workspace = False
    time_limit_s = 60.0

    def run(self, arguments: ArtifactPutArguments, bench: Bench) -> ToolResult:
        """Read it from the host's side and store it."""
        most = bench.limits.disk_mb * MEBIBYTE
        try:
            name = relative(bench.inside(arguments.path))
            content = bench.workspace.files.read(name, most)
        except FileRefused as refused:
            return ToolResult("failed", str(refused).encode())
        if content.size > most:
            return ToolResult("failed", f"{name} has {content.size} bytes; at most {most} are kept".encode())
        if not name.isprintable():
            return ToolResult("failed", f"{name!r} is a name that cannot be shown; rename the file".encode())
        try:
            kept = bench.shelf.put(name, content.data)
        except NotKept as refused:
            return ToolResult("failed", str(refused).encode())
        return ToolResult("ok", f"kept {name}, size {kept.ref.size}, key {kept.ref.key}".encode(), artifacts=(kept,))
