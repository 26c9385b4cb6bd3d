"""``edit_file``: a part of a text file, by its own words or by a diff."""

import errno
from typing import Annotated

from pydantic import StringConstraints, model_validator

from longstride.sandbox.files import FileRefused
from longstride.tools.lines import alike, split, start_of
from longstride.tools.nearest import MOST_SHOWN, nearest, numbered
from longstride.tools.patching import DiffRefused, patched
from longstride.tools.tool import Arguments, Bench, Tool, ToolResult
from longstride.tools.write_file import written

MAX_EDITED = 16 << 20
MOST_TOLD = 20
"""Lines of a text that is there more than once."""


class EditRefused(ValueError):
    """The edit does not fit the file; the text says what is there instead."""


class EditFileArguments(Arguments):
    """Arguments of ``edit_file``."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=1024)]
    """A file in the workspace."""
    old: Annotated[str, StringConstraints(min_length=1)] | None = None
    """The text to replace, exactly as the file has it, and enough of it to be there once."""
    new: str | None = None
    """The text to put in its place."""
    every: bool = False
    """Replace it wherever it is, rather than refuse when it is there more than once."""
    diff: Annotated[str, StringConstraints(min_length=1)] | None = None
    """Instead of old and new: a unified diff of this file."""

    @model_validator(mode="after")
    def _one_way(self) -> "EditFileArguments":
        by_text = self.old is not None and self.new is not None
        if (self.diff is None) != by_text or (self.diff is not None and (self.old, self.new) != (None, None)):
            raise ValueError("give either old and new, or diff")
        if self.old is not None and self.old == self.new:
            raise ValueError("old and new are the same: nothing would change")
        return self


class EditFile(Tool[EditFileArguments]):
    """Edits from the host's side: no sandbox is started. Bytes that are no UTF-8, and line ends, stay as they are."""

    name = "edit_file"
    description = (
        "Change a part of a text file of the workspace: replace text that is there exactly once, or apply a unified diff. "
        "What does not fit is refused, with the lines that are most alike; nothing is changed then."
    )
    arguments = EditFileArguments
    example = {"path": "src/app.py", "old": "retries = 1", "new": "retries = 3"}
    offered = False
    time_limit_s = 30.0

    def run(self, arguments: EditFileArguments, bench: Bench) -> ToolResult:
        """Read, edit, write, and show what is there now."""
        try:
            before = _read(arguments, bench)
            after = edited(before, arguments)
        except (FileRefused, EditRefused, DiffRefused) as refused:
            return ToolResult("failed", f"{arguments.path} is unchanged: {refused}".encode(errors="replace"))
        done = written(bench, arguments.path, after.encode(errors="surrogateescape"))
        if done.status != "ok":
            return done
        return ToolResult("ok", f"{arguments.path} is changed:\n{_changed(before, after)}".encode(errors="replace"))


def edited(text: str, arguments: EditFileArguments) -> str:
    """The text after the edit. Where every line ends in CR LF, the arguments need not.

    Raises:
        EditRefused, DiffRefused: it does not fit.
    """
    crlf = 0 < text.count("\n") == text.count("\r\n")
    plain = text.replace("\r\n", "\n") if crlf else text
    after = patched(plain, arguments.diff) if arguments.diff is not None else _replaced(plain, arguments, crlf)
    return after.replace("\n", "\r\n") if crlf else after


def _read(arguments: EditFileArguments, bench: Bench) -> str:
    try:
        content = bench.workspace.files.read(bench.inside(arguments.path), MAX_EDITED)
    except FileRefused as refused:
        cause = refused.__cause__
        absent = isinstance(cause, OSError) and cause.errno == errno.ENOENT
        if absent and arguments.diff is not None and "\n@@ -0,0 " in f"\n{arguments.diff}":
            return ""  # the diff makes the file
        raise
    if content.size > MAX_EDITED:
        raise EditRefused(f"it has {content.size} bytes; at most {MAX_EDITED} are edited: use shell or python")
    if b"\0" in content.data[:8192]:
        raise EditRefused("it is no text file")
    return content.data.decode(errors="surrogateescape")


def _replaced(text: str, arguments: EditFileArguments, crlf: bool) -> str:
    assert arguments.old is not None
    assert arguments.new is not None
    old, new = (part.replace("\r\n", "\n") if crlf else part for part in (arguments.old, arguments.new))
    count = text.count(old)
    if count == 0:
        near = nearest(text, old)
        raise EditRefused(f"old is not in it; {near or 'nothing in it is much like it: read the file again'}")
    if count > 1 and not arguments.every:
        lines = ", ".join(map(str, _lines_of(text, old)))
        raise EditRefused(
            f"old is in it {count} times, at lines {lines}: give more of the text around it, or every=true"
        )
    return text.replace(old, new)


def _lines_of(text: str, old: str) -> list[int]:
    """The line on which each of the first occurrences starts."""
    found, at, line, counted = list[int](), text.find(old), 1, 0
    while at >= 0 and len(found) < MOST_TOLD:
        line, counted = line + text.count("\n", counted, at), at
        found.append(line)
        at = text.find(old, at + len(old))
    return found


def _changed(before: str, after: str) -> str:
    """The lines from the first to the last that differ, as they are now, with one around them."""
    head = alike(before, after)
    tail = min(alike(before[::-1], after[::-1]), len(before) - head, len(after) - head)
    first = max(0, after.count("\n", 0, head) - 1)
    last = after.count("\n", 0, _rest(before, after, tail)) + 1
    lines = split(after[start_of(after, first) : start_of(after, min(last, first + MOST_SHOWN + 1))])
    return numbered(lines, first + 1) or "it is empty"


def _rest(before: str, after: str, tail: int) -> int:
    """Where the lines start that are the same to the end."""
    at = len(after) - tail
    if all(text[: len(text) - tail][-1:] in ("", "\n") for text in (before, after)):
        return at
    return (after.find("\n", at) + 1) or len(after)
