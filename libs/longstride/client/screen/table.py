"""Tables: a quiet head, no frame."""

from rich import box
from rich.table import Table

RIGHT = ">"
REST = "*"


def table(*columns: str) -> Table:
    """A table with these columns. ``>steps`` is a number, ``*instruction`` takes the rest of the line and is cut."""
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="faint", border_style="faint")
    # Only a table that fills the line gives its other columns what they need before the rest gets any.
    grid.expand = any(column.startswith(REST) for column in columns)
    for column in columns:
        name = column.lstrip(RIGHT + REST)
        if column.startswith(REST):
            grid.add_column(name, ratio=1, no_wrap=True, overflow="ellipsis")
        else:
            grid.add_column(name, justify="right" if column.startswith(RIGHT) else "left", no_wrap=True)
    return grid
