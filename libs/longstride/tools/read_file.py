"""``read_file``: a part of a text file."""

import re
from typing import Annotated

from pydantic import Field, StringConstraints

from longstride.sandbox.files import Content, FileRefused
from longstride.tools import lines as lines_of
from longstride.tools.tool import Arguments, Bench, Tool, ToolResult

MAX_READ = 16 << 20
"""Of a larger file only the start is looked at; ``shell`` reaches the rest."""
ROOM = 7 * 1024
"""Bytes of text in one answer, so that it is shown whole."""
LINE = re.compile(rb"[^\n]*\n|[^\n]+")


class ReadFileArguments(Arguments):
    """Arguments of ``read_file``."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=1024)]
    """A file in the workspace."""
    start_line: Annotated[int, Field(ge=1)] = 1
    """The first line to show; the first of the file is 1."""
    lines: Annotated[int, Field(ge=1, le=10_000)] = 1000
    """How many lines to show at the most."""


class ReadFile(Tool[ReadFileArguments]):
    """Reads from the host's side: no sandbox is started."""

    name = "read_file"
    description = "Read a text file of the workspace, or a part of it by line numbers."
    arguments = ReadFileArguments
    example = {"path": "src/app.py", "start_line": 40, "lines": 20}
    changes_workspace = False
    time_limit_s = 30.0

    def run(self, arguments: ReadFileArguments, bench: Bench) -> ToolResult:
        """The lines asked for, and where to go on when they are not all."""
        try:
            content = bench.workspace.files.read(bench.inside(arguments.path), MAX_READ)
        except FileRefused as refused:
            return ToolResult("failed", str(refused).encode())
        if b"\0" in content.data[:8192]:
            return ToolResult("ok", _described(content))
        return _shown(content, arguments)


def _described(content: Content) -> bytes:
    start = content.data[:16].hex(" ")
    return (
        f"a binary file of {content.size} bytes that starts with {start}; use shell or python to look into it".encode()
    )


def _shown(content: Content, arguments: ReadFileArguments) -> ToolResult:
    data, lines = content.data, lines_of.count(content.data)
    if arguments.start_line > max(1, lines):
        return ToolResult("failed", f"the file has {lines} lines; start_line is {arguments.start_line}".encode())
    start = lines_of.start_of(data, arguments.start_line - 1)
    shown = _fitting(LINE.findall(data[start : start + ROOM + 1])[: arguments.lines])
    last = arguments.start_line - 1 + len(shown)
    text = b"".join(shown)
    if not shown and data:
        size = lines_of.start_of(data[start:], 1)
        return ToolResult("ok", data[start:][:ROOM] + f"\n[line {last + 1} goes on; it has {size} bytes]".encode())
    if last < lines or len(data) < content.size:
        gap = b"" if text.endswith(b"\n") else b"\n"
        text += (
            gap
            + f"[lines {arguments.start_line} to {last} of {_total(content, lines)}; go on with start_line={last + 1}]".encode()
        )
    return ToolResult("ok", text or b"(an empty file)")


def _fitting(lines: list[bytes]) -> list[bytes]:
    room, count = ROOM, 0
    for line in lines:
        room -= len(line)
        if room < 0:
            break
        count += 1
    return lines[:count]


def _total(content: Content, lines: int) -> str:
    return str(lines) if len(content.data) == content.size else f"more than {lines}"
