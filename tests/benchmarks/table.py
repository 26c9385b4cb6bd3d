"""What a benchmark prints."""

from collections.abc import Sequence
from dataclasses import dataclass

Row = Sequence[str]


@dataclass(frozen=True)
class Table:
    """A title, the names of the columns, and the rows; as text it is Markdown."""

    title: str
    head: Row
    rows: Sequence[Row]

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.head, *self.rows, strict=True)]
        lines = [self.head, ["-" * width for width in widths], *self.rows]
        text = "\n".join("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines)
        return f"### {self.title}\n\n{text}\n"
