"""A line of shell as the commands that it joins with ``&&`` and ``;``, as far as they can be told apart."""

import re
from collections.abc import Iterator

COMPOUND = frozenset(("!", "(", "{", "case", "for", "function", "if", "select", "time", "until", "while"))
"""What a command begins with that goes on beyond the next separator."""
QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""", re.DOTALL)
OPERATORS = re.compile(r"[|&<>]")


def split(text: str) -> list[tuple[str, str]]:
    """(command, the separator after it) in order; a line that is more than a list of simple commands is one command."""
    parts = list(_parts(text)) if "<<" not in text and "\n" not in text else [(text.strip(), "")]
    words = [command.split(maxsplit=1)[0] for command, _ in parts if command]
    if any(word in COMPOUND or word.startswith(("(", "{")) for word in words):
        return [(text.strip(), "")]
    return [(command, separator) for command, separator in parts if command]


def joined(parts: list[tuple[str, str]]) -> str:
    """The line again."""
    return " ".join(f"{command} {separator}".strip() for command, separator in parts)


def is_simple(command: str) -> bool:
    """Whether it is one command, whose words are all its own: no pipe, no ``||``, no redirection."""
    return OPERATORS.search(QUOTED.sub("", command)) is None


def _parts(text: str) -> Iterator[tuple[str, str]]:
    start = index = depth = 0
    quote = ""
    while index < len(text):
        character = text[index]
        if character == "\\" and quote != "'":
            index += 1
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"`":
            quote = character
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif depth == 0 and (separator := _separator(text, index)):
            yield text[start:index].strip(), separator
            index += len(separator) - 1
            start = index + 1
        index += 1
    yield text[start:].strip(), ""


def _separator(text: str, index: int) -> str:
    if text.startswith("&&", index):
        return "&&"
    return ";" if text[index] == ";" else ""
