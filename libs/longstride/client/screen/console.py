"""The two consoles, and how results leave a command: for people, or as JSON."""

import json
import os
import sys
from functools import cache
from typing import Any

from rich.console import Console
from rich.text import Text
from rich.theme import Theme

from longstride.client.screen.safe import one_line, safe

THEME = Theme(
    {
        "good": "green",
        "bad": "red",
        "mend": "yellow",
        "faint": "dim",
        "name": "cyan",
        "strong": "bold",
        "thought": "dim italic",
        "good.end": "bold green",
        "bad.end": "bold red",
        "mend.end": "bold yellow",
    },
    inherit=True,
)
PLAIN_WIDTH = 120
"""Columns where no terminal says how many."""


@cache
def out() -> Console:
    """Standard output: what was asked for."""
    return _console(sys.stdout)


@cache
def err() -> Console:
    """Standard error: what is said about it."""
    return _console(sys.stderr)


def _console(file: Any) -> Console:
    fixed = None if file.isatty() or os.environ.get("COLUMNS") else PLAIN_WIDTH
    return Console(file=file, theme=THEME, highlight=False, markup=False, emoji=False, width=fixed)


def say(sentence: str) -> None:
    """Tell what is going on."""
    err().print(Text(safe(sentence), style="faint"), soft_wrap=True)


def complain(sentence: str) -> None:
    """Tell what went wrong."""
    err().print(Text.assemble(("error: ", "bad"), safe(sentence)), soft_wrap=True)


def complain_json(sentence: str) -> None:
    """Tell a program what went wrong: one object, on one line."""
    err().file.write(json.dumps({"error": sentence}) + "\n")


def show(*parts: Any) -> None:
    """Print rich renderables, or strings as they are. Lines are not broken, so that paths can be copied; tables fit."""
    for part in parts:
        shown = Text(safe(part)) if isinstance(part, str) else part
        out().print(shown, soft_wrap=isinstance(shown, Text))


def show_json(value: Any) -> None:
    """One JSON document. ASCII, so that text of agents cannot reach the terminal raw."""
    out().file.write(json.dumps(value, indent=2, default=str) + "\n")


def show_json_line(value: Any) -> None:
    """One line of JSON Lines, at once."""
    out().file.write(json.dumps(value, separators=(",", ":"), default=str) + "\n")
    out().file.flush()


def cell(text: str | None, style: str = "", most: int = 500) -> Text:
    """Text of an agent or a person as one line of a table, ``most`` columns wide at the most."""
    shown = Text(one_line(text or ""), style=style, overflow="ellipsis", no_wrap=True)
    shown.truncate(most, overflow="ellipsis")
    return shown
