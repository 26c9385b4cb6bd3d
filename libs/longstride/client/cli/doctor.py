"""``longstride doctor``: what is missing on this machine, and how to get it."""

from dataclasses import asdict

import typer
from rich.table import Table
from rich.text import Text

from longstride.client.cli import exit_codes
from longstride.client.cli.options import Json
from longstride.client.health import Finding, examine
from longstride.client.screen.console import out, show, show_json_line
from longstride.client.screen.safe import safe
from longstride.client.screen.symbols import symbols
from longstride.client.settings import load

NAME = 11
STYLES = {"good": "good", "missing": "bad", "weak": "mend"}


def doctor(json: Json = False) -> None:
    """Look at this machine, and at the services that the environment names.

    Exit code: 1 when something is missing without which Longstride does not run.

    Example:

      longstride doctor
    """
    missing = False
    for finding in examine(load()):
        missing = missing or finding.state == "missing"
        if json:
            show_json_line(asdict(finding))
        else:
            show(row(finding))
    raise typer.Exit(exit_codes.FAILED if missing else exit_codes.OK)


def row(finding: Finding) -> Table:
    """A finding for people."""
    marks = symbols(out().encoding)
    mark = {"good": marks.good, "missing": marks.bad, "weak": "!"}[finding.state]
    style = STYLES[finding.state]
    told = Text(safe(finding.told))
    if finding.remedy:
        told.append(f"\n{marks.hint} {safe(finding.remedy)}", style)
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=1)
    grid.add_column(width=NAME, no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_row(Text(mark, style), Text(finding.name, "strong"), told)
    return grid
