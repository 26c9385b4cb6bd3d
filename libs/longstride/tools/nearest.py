"""The part of a text that is most like what somebody took to be in it."""

import difflib
import heapq

from longstride.tools.lines import split

MOST_LINES, MOST_CHARACTERS = 5000, 1 << 20
"""Of a longer text only the start is looked through."""
MOST_COMPARED, MOST_IN_ORDER = 4000, 300
"""Characters. In order, texts of a few characters in turn take the third power of their length."""
MOST_SHOWN = 12
LIKE = 0.5
"""Less alike than this is no help."""


def nearest(text: str, wanted: str) -> str | None:
    """Numbered lines of ``text`` that resemble ``wanted``, and in which way; ``None`` when none do."""
    lines = split(text[:MOST_CHARACTERS])[:MOST_LINES]
    sought = split(wanted) or [""]
    width = min(len(sought), len(lines))
    if not width:
        return None
    start, likeness = _best(lines, sought, width)
    if likeness < LIKE:
        return None
    found = lines[start : start + width]
    only_space = ["".join(line.split()) for line in found] == ["".join(line.split()) for line in sought]
    how = "differ in white space alone" if only_space else "are the most alike"
    return f"lines {start + 1} to {start + width} {how}:\n{numbered(found, start + 1)}"


def numbered(lines: list[str], first: int) -> str:
    """``12  text`` for each line; what is much is cut."""
    shown = [f"{first + index:>5}  {_without_return(line)[:200]}" for index, line in enumerate(lines[:MOST_SHOWN])]
    return "\n".join([*shown, *(["    …"] if len(lines) > MOST_SHOWN else [])])


def _without_return(line: str) -> str:
    return line.removesuffix("\r")


def _best(lines: list[str], sought: list[str], width: int) -> tuple[int, float]:
    """(start, likeness): bags of characters choose a few candidates, which are then compared in order."""
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2("\n".join(sought)[:MOST_COMPARED])
    some = min(width, MOST_COMPARED)
    starts = range(len(lines) - width + 1)

    def likeness(start: int, exact: bool) -> float:
        if exact:
            return _in_order("\n".join(lines[start : start + some]), "\n".join(sought))
        matcher.set_seq1("\n".join(lines[start : start + some])[:MOST_COMPARED])
        return matcher.quick_ratio()

    candidates = heapq.nlargest(8, starts, key=lambda start: likeness(start, False))
    best = max(candidates, key=lambda start: likeness(start, True))
    return best, likeness(best, True)


def _in_order(one: str, other: str) -> float:
    """From their starts."""
    return difflib.SequenceMatcher(None, one[:MOST_IN_ORDER], other[:MOST_IN_ORDER], autojunk=False).ratio()
