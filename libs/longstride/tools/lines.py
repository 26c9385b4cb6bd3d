"""Lines of texts, as every tool counts them: a newline ends one, and nothing else does.

Texts may have millions of them: only ``split`` takes a text apart, and nothing looks at one more than a few dozen times.
"""

from typing import AnyStr


def count(text: AnyStr) -> int:
    """Lines; what follows the last newline is one where it is anything."""
    newline = _newline(text)
    return text.count(newline) + (len(text) > 0 and not text.endswith(newline))


def split(text: AnyStr) -> list[AnyStr]:
    """Each line without its newline: as many as ``count`` counts."""
    lines = text.split(_newline(text))
    return lines if lines[-1] else lines[:-1]


def start_of(text: AnyStr, index: int) -> int:
    """Where the line with this index starts, the first being 0; the text's end where it has no such line."""
    newline, low, high, before = _newline(text), 0, len(text), 0
    while low < high:
        middle = (low + high) // 2
        newlines = before + text.count(newline, low, middle)
        if newlines < index:
            low, before = middle + 1, newlines + text.count(newline, middle, middle + 1)
        else:
            high = middle
    return low


def alike(one: AnyStr, other: AnyStr) -> int:
    """How many characters are the same from the start."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _newline(text: AnyStr) -> AnyStr:
    return "\n" if isinstance(text, str) else b"\n"
