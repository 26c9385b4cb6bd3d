"""``search_files``: paths and lines that contain a text."""

from typing import Annotated

from pydantic import Field, StringConstraints

from longstride.contracts.v1.environment import WORKSPACE
from longstride.sandbox.files import FileRefused, relative
from longstride.tools.lines import split
from longstride.tools.tool import Arguments, Bench, Tool, ToolResult, of_execution

SCRIPT = """\
find "./$3" \\( -type f -o -type l \\) -print0 | cut -z -c3- | grep -z "$1" -e "$2"
[ "$?" -le 1 ] || exit 2
printf '\\0'
grep -rnIZ --devices=skip --exclude-dir=.git "$1" -e "$2" -- "./$3"
[ "$?" -le 1 ] || exit 2
"""
"""Matching runs in the sandbox: a pattern can take for ever. Output: paths ended by NUL, a NUL alone, then path NUL line."""
LONGEST_LINE = 200


class SearchFilesArguments(Arguments):
    """Arguments of ``search_files``."""

    pattern: Annotated[str, StringConstraints(min_length=1, max_length=1024)]
    """The text to look for, in the files' paths and in their lines."""
    path: Annotated[str, StringConstraints(max_length=1024)] = ""
    """Only this directory or file."""
    regex: bool = False
    """Whether the pattern is an extended regular expression (POSIX), not plain text."""
    max_matches: Annotated[int, Field(ge=1, le=1000)] = 100
    """Matches to show at the most."""


class SearchFiles(Tool[SearchFilesArguments]):
    """Paths first, then lines, each in order."""

    name = "search_files"
    description = "Find the files whose path contains a text, and the lines that contain it."
    arguments = SearchFilesArguments
    example = {"pattern": "TODO", "path": "src"}
    changes_workspace = False
    time_limit_s = 60.0

    def run(self, arguments: SearchFilesArguments, bench: Bench) -> ToolResult:
        """Search; nothing found is a good answer, too."""
        try:
            path = bench.inside(arguments.path)
            below = relative(path) if path not in ("", ".", "./", WORKSPACE) else ""
        except FileRefused as refused:
            return ToolResult("failed", str(refused).encode())
        kind = "-E" if arguments.regex else "-F"
        execution = bench.run("sh", "-c", SCRIPT, "sh", kind, arguments.pattern, below)
        if execution.status != "ok":
            return of_execution(execution)
        found = matches(execution.stdout)
        return ToolResult("ok", _listed(found, arguments.max_matches), usage=execution.usage)


def matches(output: bytes) -> list[bytes]:
    """The script's output as lines to show: ``path``, then ``path:12:text``."""
    names, _, lines = output.partition(b"\0\0") if not output.startswith(b"\0") else (b"", b"", output[1:])
    paths = sorted(name for name in names.split(b"\0") if name)
    found = []
    for record in split(lines):
        path, _, rest = record.partition(b"\0")
        number, _, text = rest.partition(b":")
        if number.isdigit():
            found.append((path.removeprefix(b"./"), int(number), text.removesuffix(b"\r")[:LONGEST_LINE]))
    return [*paths, *(b"%s:%d:%s" % hit for hit in sorted(found))]


def _listed(found: list[bytes], most: int) -> bytes:
    if not found:
        return b"no match"
    more = [b"[%d more matches]" % (len(found) - most)] if len(found) > most else []
    return b"\n".join([*found[:most], *more])
