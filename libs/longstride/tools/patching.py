"""Unified diffs of one file, as models write them: line numbers are a hint, counts are not believed, context is."""

import re
from dataclasses import dataclass, field

from longstride.tools.nearest import nearest

HUNK = re.compile(r"@@(?: -(?P<start>\d+)(?:,\d+)? \+\d+(?:,\d+)?)? ?@@")
NO_NEWLINE = "\\ No newline at end of file"


class DiffRefused(ValueError):
    """The diff cannot be applied; the text says to which lines, and what is there instead."""


@dataclass
class Hunk:
    """A part of a diff."""

    number: int
    start: int | None
    """The line it names, the first being 1."""
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)

    @property
    def named(self) -> int | None:
        """The index that it names: of its first old line, or, without any, of what follows the line it names."""
        return self.start if self.start is None or not self.old else self.start - 1


def patched(text: str, diff: str) -> str:
    """The text after a diff: all of it or nothing.

    Raises:
        DiffRefused: it is no diff, it is one of several files, or some lines are not there.
    """
    lines = text.split("\n")
    shift = 0
    for hunk in hunks(diff):
        at = _place(lines, hunk, shift)
        lines[at : at + len(hunk.old)] = hunk.new
        if hunk.named is not None:
            shift = at - hunk.named + len(hunk.new) - len(hunk.old)
    return "\n".join(lines)


def hunks(diff: str) -> list[Hunk]:
    """Read a diff of one file.

    Raises:
        DiffRefused: it is none.
    """
    found: list[Hunk] = []
    for line in diff.replace("\r\n", "\n").rstrip("\n").split("\n"):
        if match := HUNK.match(line):
            found.append(Hunk(len(found) + 1, int(match["start"]) if match["start"] else None))
        elif found and _begins_another(found[-1], line):
            raise DiffRefused("the diff is about several files: make a call for each")
        elif found:
            _take(found[-1], line)
    if not found:
        raise DiffRefused("there is no hunk in the diff: each starts with a line such as @@ -12,3 +12,4 @@")
    return [_settled(hunk) for hunk in found]


def _begins_another(hunk: Hunk, line: str) -> bool:
    """``--- a/other`` after a hunk begins another file; ``--- x`` may also remove a line ``-- x``."""
    return bool(hunk.old or hunk.new) and bool(re.match(r"--- (?:a/|/dev/null)|diff --git ", line))


def _take(hunk: Hunk, line: str) -> None:
    kind, content = line[:1], line[1:]
    if line == NO_NEWLINE:
        return  # how a file ends is not changed by a diff
    if kind == "-":
        hunk.old.append(content)
    elif kind == "+":
        hunk.new.append(content)
    elif kind in (" ", ""):
        hunk.old.append(content)
        hunk.new.append(content)
    else:
        raise DiffRefused(f"hunk {hunk.number}: the line {line[:80]!r} starts with neither space, + nor -")


def _settled(hunk: Hunk) -> Hunk:
    if hunk.old == hunk.new:
        raise DiffRefused(f"hunk {hunk.number} changes nothing: its lines with + and - are alike or missing")
    return hunk


def _place(lines: list[str], hunk: Hunk, shift: int) -> int:
    """Where the hunk's old lines are: the place nearest to the one it names, or the only one."""
    if not hunk.old:
        return _insertion(lines, hunk, shift)
    width = len(hunk.old)
    places = [at for at in range(_count(lines) - width + 1) if lines[at : at + width] == hunk.old]
    if not places:
        raise DiffRefused(_not_there(lines, hunk))
    if hunk.start is None and len(places) > 1:
        told = ", ".join(str(at + 1) for at in places[:10])
        raise DiffRefused(
            f"hunk {hunk.number}: its lines are there {len(places)} times, from lines {told}: name the line"
        )
    return min(places, key=lambda at: abs(at - (hunk.named or 0) - shift))


def _insertion(lines: list[str], hunk: Hunk, shift: int) -> int:
    """Lines without context go after the line that the hunk names; into an empty file they go as they are."""
    if lines == [""]:
        return 0
    if hunk.named is None:
        raise DiffRefused(f"hunk {hunk.number} has no line to go by: give it context, or a line number")
    return min(hunk.named + shift, _count(lines))


def _count(lines: list[str]) -> int:
    """Lines of the file: what follows its last newline is none."""
    return len(lines) - (lines[-1] == "")


def _not_there(lines: list[str], hunk: Hunk) -> str:
    wanted = "\n".join(hunk.old)
    near = nearest("\n".join(lines), wanted)
    told = f"; {near}" if near else ""
    return f"hunk {hunk.number}: the file has no such lines as its context and removed lines, the first being {hunk.old[0][:120]!r}{told}"
