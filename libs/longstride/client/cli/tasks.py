"""``longstride tasks``: the list of them."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from longstride.client.cli.options import Json
from longstride.client.connect import connect
from longstride.client.errors import UsageProblem
from longstride.client.screen import units
from longstride.client.screen.console import cell, say, show, show_json
from longstride.client.screen.table import table
from longstride.client.screen.verdict import verdict
from longstride.storage.tasks import TaskHead

STATUSES = ("queued", "running", "parked", "succeeded", "failed", "cancelled")


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
    else:
        say('no tasks; the first one: longstride run "What is the total of amount in orders.csv?" --input orders.csv')


def listing(heads: list[TaskHead]) -> Table:
    """Tasks, one a row."""
    grid = table("task", "status", ">reward", ">steps", ">tokens", ">age", "*instruction")
    for head in heads:
        grid.add_row(
            Text(units.short(head.id), "name"),
            Text(*verdict(head.status, head.reason)),
            units.reward(head.reward),
            str(head.steps),
            f"{head.input_tokens + head.output_tokens:,}",
            units.ago(head.created_at),
            cell(head.instruction),
        )
    return grid
