"""Unified diffs of one file, as models write them: line numbers are a hint, counts are not believed, context is."""

import re
from dataclasses import dataclass, field

from longstride.tools.lines import start_of
from longstride.tools.nearest import nearest

HUNK = re.compile(r"@@(?: -(?P<start>\d+)(?:,\d+)? \+\d+(?:,\d+)?)? ?@@")
MOST_WORK = 512 << 20
"""Hunks times characters: each hunk looks through the whole text a few times, which takes some 20 ms a MiB at the worst."""
MOST_TOLD = 10
"""Places of lines that are there more than once."""
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
    def block(self) -> str:
        """Its old lines, whole: between two newlines."""
        return "\n".join(["", *self.old, ""])

    @property
    def named(self) -> int | None:
        """The index that it names: of its first old line, or, without any, of what follows the line it names."""
        return self.start if self.start is None or not self.old else self.start - 1


def patched(text: str, diff: str) -> str:
    """The text after a diff: all of it or nothing.

    Raises:
        DiffRefused: it is no diff, it is one of several files, it has too many hunks, or some lines are not there.
    """
    shift, parts = 0, hunks(diff)
    _require_fewer(parts, len(text) + len(diff))
    for hunk in parts:
        at = _place(text, hunk, shift) if hunk.old else _insertion(text, hunk, shift)
        if hunk.named is not None:
            shift = (
                text.count("\n", 0, at) + (at > 0 and text[at - 1] != "\n") - hunk.named + len(hunk.new) - len(hunk.old)
            )
        text = _replaced(text, at, hunk)
    return text


def _require_fewer(parts: list[Hunk], characters: int) -> None:
    most = max(1, MOST_WORK // characters)
    if len(parts) > most:
        raise DiffRefused(f"{len(parts)} hunks are too many for a text of this size: give at most {most} in one call")


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


def _replaced(text: str, at: int, hunk: Hunk) -> str:
    """The hunk's new lines in the place of its old ones. How a file ends stays as it is."""
    end = at + len("\n".join(hunk.old))
    if not hunk.old:
        unended = at > 0 and not text[:at].endswith("\n")
        return text[:at] + ("\n" if unended else "") + "\n".join(hunk.new) + ("" if unended else "\n") + text[at:]
    if hunk.new:
        return text[:at] + "\n".join(hunk.new) + text[end:]
    return text[:at] + text[end + 1 :] if end < len(text) else text[: max(0, at - 1)]


def _place(text: str, hunk: Hunk, shift: int) -> int:
    """Where the hunk's old lines start: the place nearest to the one it names, or the only one."""
    places = _only(text, hunk) if hunk.named is None else _neighbours(text, hunk, hunk.named + shift)
    if not places:
        raise DiffRefused(_not_there(text, hunk))
    wanted = (hunk.named or 0) + shift
    return min(places, key=lambda at: abs(text.count("\n", 0, at) - wanted))


def _only(text: str, hunk: Hunk) -> list[int]:
    padded, block = _padded(text), hunk.block
    at, places = padded.find(block), list[int]()
    while at >= 0 and len(places) <= MOST_TOLD:
        places.append(at)
        at = padded.find(block, at + 1)
    if len(places) > 1:
        told = ", ".join(str(text.count("\n", 0, at) + 1) for at in places[:MOST_TOLD])
        times = f"{len(places)} times" if len(places) <= MOST_TOLD else f"more than {MOST_TOLD} times"
        raise DiffRefused(f"hunk {hunk.number}: its lines are there {times}, from lines {told}: name the line")
    return places


def _neighbours(text: str, hunk: Hunk, line: int) -> list[int]:
    """The last place before a line, and the first from there on."""
    start = start_of(text, max(0, line))
    padded = _padded(text)
    if padded.startswith(hunk.block, start):
        return [start]
    return [at for at in (_last_before(padded, hunk.block, start), padded.find(hunk.block, start)) if at >= 0]


def _padded(text: str) -> str:
    """As a block finds its lines in it, at the index that they have in the text."""
    return "\n" + text.removesuffix("\n") + "\n" if text else ""


def _last_before(padded: str, block: str, start: int) -> int:
    """The first in the mirror: ``rfind`` may take as long as text and needle multiplied, ``find`` does not."""
    at = padded[::-1].find(block[::-1], max(0, len(padded) - len(block) - start + 1))
    return len(padded) - len(block) - at if at >= 0 else -1


def _insertion(text: str, hunk: Hunk, shift: int) -> int:
    """Lines without context go after the line that the hunk names; into an empty file they go as they are."""
    if not text:
        return 0
    if hunk.named is None:
        raise DiffRefused(f"hunk {hunk.number} has no line to go by: give it context, or a line number")
    return start_of(text, max(0, hunk.named + shift))


def _not_there(text: str, hunk: Hunk) -> str:
    wanted = "\n".join(hunk.old)
    near = nearest(text, wanted)
    told = f"; {near}" if near else ""
    return f"hunk {hunk.number}: the file has no such lines as its context and removed lines, the first being {hunk.old[0][:120]!r}{told}"
