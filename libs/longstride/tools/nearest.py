"""The part of a text that is most like what somebody took to be in it."""

import difflib
import heapq

MOST_LINES = 5000
"""Of a longer text only the start is looked through."""
MOST_SHOWN = 12
LIKE = 0.5
"""Less alike than this is no help."""


def nearest(text: str, wanted: str) -> str | None:
    """Numbered lines of ``text`` that resemble ``wanted``, and in which way; ``None`` when none do."""
    lines = text.splitlines()[:MOST_LINES]
    sought = wanted.splitlines() or [""]
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
    shown = [f"{first + index:>5}  {line[:200]}" for index, line in enumerate(lines[:MOST_SHOWN])]
    return "\n".join([*shown, *(["    …"] if len(lines) > MOST_SHOWN else [])])


def _best(lines: list[str], sought: list[str], width: int) -> tuple[int, float]:
    """(start, likeness): bags of characters choose a few candidates, which are then compared in order."""
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2("\n".join(sought)[:4000])
    starts = range(len(lines) - width + 1)

    def likeness(start: int, exact: bool) -> float:
        matcher.set_seq1("\n".join(lines[start : start + width])[:4000])
        return matcher.ratio() if exact else matcher.quick_ratio()

    candidates = heapq.nlargest(8, starts, key=lambda start: likeness(start, False))
    best = max(candidates, key=lambda start: likeness(start, True))
    return best, likeness(best, True)
