"""``longstride tasks``: the list of them."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, NamedTuple

import typer
from rich.table import Table
from rich.text import Text

from longstride.client.cli.options import Json
from longstride.client.connect import connect
from longstride.client.errors import UsageProblem
from longstride.client.screen import units
from longstride.client.screen.console import cell, out, say, show, show_json
from longstride.client.screen.table import table
from longstride.client.screen.verdict import verdict
from longstride.storage.tasks import TaskHead

STATUSES = ("queued", "running", "parked", "succeeded", "failed", "cancelled")


class Column(NamedTuple):
    """One of the table."""

    name: str
    least: int
    """Columns of a terminal below which it makes room for the others."""
    cell: Callable[[TaskHead], Text | str]


COLUMNS = (
    Column("task", 0, lambda head: Text(units.short(head.id), "name")),
    Column("status", 0, lambda head: Text(*verdict(head.status, head.reason))),
    Column(">reward", 60, lambda head: units.reward(head.reward)),
    Column(">steps", 90, lambda head: str(head.steps)),
    Column(">tokens", 90, lambda head: f"{head.input_tokens + head.output_tokens:,}"),
    Column(">age", 70, lambda head: units.ago(head.created_at)),
    Column("*instruction", 0, lambda head: cell(head.instruction)),
)


def tasks(
    status: Annotated[str | None, typer.Option(metavar="STATUS", help=" | ".join(STATUSES))] = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Of this session alone.")] = None,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Of this tenant alone.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many.")] = 20,
    json: Json = False,
) -> None:
    """List tasks, the newest first.

    Examples:

      longstride tasks --status running

      longstride tasks -n 500 --json | jq '.[] | select(.reward == 0) | .id'
    """
    if status is not None and status not in STATUSES:
        raise UsageProblem(f"--status {status!r} is none of {', '.join(STATUSES)}")
    with connect(say) as deployment, deployment.reader.transaction() as uow:
        found = uow.tasks.list(status=status, tenant=tenant, session_id=session, limit=limit + 1)
    heads = found[:limit]
    if len(found) > limit:
        say(f"the newest {limit} only; more: --limit")
    if json:
        show_json([asdict(head) for head in heads])
    elif heads:
        show(listing(heads))
    elif status or session or tenant:
        say("no task is like that; `longstride tasks` lists all")
    else:
        say('no tasks; the first one: longstride run "What is the total of amount in orders.csv?" --input orders.csv')


def listing(heads: list[TaskHead]) -> Table:
    """Tasks, one a row."""
    shown = [column for column in COLUMNS if out().width >= column.least]
    grid = table(*(column.name for column in shown))
    for head in heads:
        grid.add_row(*(column.cell(head) for column in shown))
    return grid
