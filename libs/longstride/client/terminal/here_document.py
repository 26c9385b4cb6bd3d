"""Here-documents of a shell: text that a command is given, line by line."""

import re
from collections.abc import Iterator

START = re.compile(r"(?<!<)<<(?P<tabs>-?)(?P<quote>[\"']?)(?P<word>[A-Za-z_]\w*)(?P=quote)")
SHELL = re.compile(r"(?:^|[;&|(])\s*(?:(?:/usr)?/bin/)?(?:ba|da)?sh\b")


def is_end(start: re.Match[str], line: str) -> bool:
    """Whether a line ends the document that began with ``start``."""
    return (line.lstrip("\t") if start["tabs"] else line) == start["word"]


def alone(script: str) -> str:
    """A here-document's text where it is all there is: then it is the script, as with Docker. Any other script as it is."""
    first, _, rest = script.partition("\n")
    return rest.rpartition("\n")[0] if START.fullmatch(first.strip()) else script


def lines(script: str) -> Iterator[tuple[str, bool]]:
    """(line, whether a shell carries it out) of a script, in order: what a here-document gives to another command is text."""
    rest = iter(script.split("\n"))
    for line in rest:
        yield line, True
        read_by_shell = SHELL.search(START.sub("", line)) is not None
        for start in START.finditer(line):
            document = list(_document(start, rest))
            yield from (
                lines("\n".join(document)) if read_by_shell and document else ((text, False) for text in document)
            )


def _document(start: re.Match[str], rest: Iterator[str]) -> Iterator[str]:
    """Its lines, the last of them its end."""
    for line in rest:
        yield line
        if is_end(start, line):
            return
