"""Options that several commands share."""

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print JSON Lines for programs: one event a line.")]
TaskId = Annotated[str, typer.Argument(metavar="TASK", help="Its id, or a unique beginning or end of it.")]
Tenant = Annotated[str, typer.Option(metavar="NAME", help="Whose task it is.")]
"""Tenants take turns when tasks wait."""
