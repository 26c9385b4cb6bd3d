"""A Dockerfile as a list of instructions, each with the line it starts on."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from longstride.client.terminal import here_document

VARIABLE = re.compile(r"\\\$|\$(?:\{(?P<braced>\w+)(?::-(?P<default>[^}]*))?\}|(?P<plain>\w+))")

MOST_EXPANDED = 64 * 1024
"""Characters that variables may add to one text."""


class DockerfileProblem(ValueError):
    """The text is not a Dockerfile that can be read; it names the line."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """``COPY a b`` on line 3."""

    line: int
    keyword: str
    """In capitals."""
    value: str
    """The rest, its continued lines joined."""

    def __str__(self) -> str:
        text = f"{self.keyword} {self.value}".partition("\n")[0]
        return text if len(text) <= 100 else text[:97] + "…"

    @property
    def is_list(self) -> bool:
        """Whether it is given as a JSON list: no shell reads it."""
        try:
            return isinstance(json.loads(self.value), list)
        except (ValueError, RecursionError):
            return False

    def words(self) -> list[str]:
        """The value's words; a JSON list is taken as one.

        Raises:
            DockerfileProblem: a quotation does not end.
        """
        if self.value.startswith("["):
            try:
                return [str(word) for word in json.loads(self.value)]
            except (ValueError, RecursionError):
                pass  # a glob such as [ab].txt
        try:
            return shlex.split(self.value)
        except ValueError as error:
            raise DockerfileProblem(f"line {self.line}: {self}: {error}") from error


def instructions(text: str) -> list[Instruction]:
    """Read a Dockerfile.

    Raises:
        DockerfileProblem: a line is not an instruction, or a here-document is one that cannot be read.
    """
    return [_instruction(line, joined) for line, joined in _joined(text)]


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """``$A``, ``${A}`` and ``${A:-default}`` by their values; what is unknown is empty, as with Docker.

    Raises:
        DockerfileProblem: it becomes very long: a dozen lines that each repeat the one before fill any memory.
    """
    room = MOST_EXPANDED

    def value(found: re.Match[str]) -> str:
        nonlocal room
        name = found["braced"] or found["plain"]
        put = "$" if name is None else variables.get(name) or found["default"] or ""
        room -= len(put)
        if room < 0:
            raise DockerfileProblem(f"{text[:80]!r}: with its variables it has more than {MOST_EXPANDED} characters")
        return put

    return VARIABLE.sub(value, text)


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """(first line's number, text) of each instruction; comments go, also between continued lines."""
    parts: list[str] = []
    start = 0
    lines = enumerate(text.splitlines(), 1)
    for number, raw in lines:
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        start = start if parts else number
        parts.append(line.removesuffix("\\").strip())
        if not line.endswith("\\"):
            yield start, " ".join(parts) + _here_documents(start, " ".join(parts), lines)
            parts = []
    if parts:
        yield start, " ".join(parts)


def _here_documents(start: int, instruction: str, lines: Iterator[tuple[int, str]]) -> str:
    """The lines that belong to it, as they are.

    Raises:
        DockerfileProblem: one does not end.
    """
    taken = ""
    for found in here_document.START.finditer(instruction) if instruction[:4].upper() == "RUN " else ():
        for _, raw in lines:
            taken += f"\n{raw}"
            if here_document.is_end(found, raw):
                break
        else:
            raise DockerfileProblem(f"line {start}: {instruction}: its here-document does not end with {found['word']}")
    return taken


def _instruction(line: int, text: str) -> Instruction:
    keyword, _, value = text.partition(" ")
    if not keyword.isalpha():
        raise DockerfileProblem(f"line {line}: {text!r} is not an instruction of a Dockerfile")
    found = Instruction(line, keyword.upper(), value.strip())
    if found.keyword in ("COPY", "ADD") and here_document.START.search(value):
        raise DockerfileProblem(f"line {line}: {found}: here-documents are not copied: put the text into a file")
    return found
