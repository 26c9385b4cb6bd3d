"""From whatever a tool put out to the text that an agent reads."""

import re
from dataclasses import dataclass

SHOWN = 8 * 1024
"""Bytes of UTF-8 that an observation has at the most."""
HEAD = 3 * 1024
"""The start tells what it is; the end tells how it went, and gets the larger part."""
NOTE_ROOM = 256
MOST_HEAD_FOR_TRACEBACK = 1024
BINARY_SHARE = 0.1
TRACEBACK = "Traceback (most recent call last):"

CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
ESCAPE_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


@dataclass(frozen=True, slots=True)
class Clipped:
    """A text that fits, and how much of it is missing."""

    text: str
    left_out: int
    """Bytes; 0 when ``text`` is all."""


def printable(output: bytes) -> str:
    """Text without terminal sequences; what is not text is shown as escapes, or only described when it is much."""
    text = output.decode(errors="backslashreplace").replace("\r\n", "\n").replace("\r", "\n")
    text = ESCAPE_SEQUENCES.sub("", text)
    shown = CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text).replace("\x1b", "\\x1b")
    if _is_binary(output):
        return f"[{len(output)} bytes, most of them not text; they start with {output[:32].hex(' ')}]"
    return shown


def clip(text: str, whole: str) -> Clipped:
    """The head and the tail of a text that is longer than ``SHOWN``, with a line between them.

    A traceback at the end is kept whole where it fits at all.

    Args:
        text: all of it.
        whole: where all of it is kept, for that line.
    """
    data = text.encode()
    if len(data) <= SHOWN:
        return Clipped(text, 0)
    head, tail = _shares(data)
    start = _cut(data[:head].rsplit(b"\n", 1)[0] if b"\n" in data[head // 2 : head] else data[:head])
    end = _cut(_from_line_start(data[len(data) - tail :]))
    left_out = len(data) - len(start.encode()) - len(end.encode())
    note = f"\n[{left_out} bytes left out here; all {len(data)} are kept in {whole}]\n"
    return Clipped(start + note + end, left_out)


def _shares(data: bytes) -> tuple[int, int]:
    """(head, tail) in bytes."""
    room = SHOWN - NOTE_ROOM
    traceback = len(data) - max(0, data.rfind(TRACEBACK.encode()))
    if TRACEBACK.encode() in data and room - HEAD < traceback <= room - MOST_HEAD_FOR_TRACEBACK:
        return room - traceback, traceback
    return HEAD, room - HEAD


def _from_line_start(data: bytes) -> bytes:
    """Without the half of a line it starts with, where that is short."""
    line, newline, rest = data.partition(b"\n")
    return rest if newline and len(line) < len(data) // 2 and not data.startswith(TRACEBACK.encode()) else data


def _cut(data: bytes) -> str:
    """Half characters at either end go."""
    return data.decode(errors="ignore")


def _is_binary(output: bytes) -> bool:
    sample = output[:8192]
    odd = sum(byte < 9 or 13 < byte < 27 or 27 < byte < 32 for byte in sample)
    return odd > BINARY_SHARE * len(sample) and odd > 4
