"""``longstride watch``: see running tasks, from their first step on."""

from typing import Annotated

import typer

from longstride.client.cli import exit_codes
from longstride.client.cli.follow import follow
from longstride.client.cli.options import JsonLines
from longstride.client.connect import connect
from longstride.client.screen.console import say


def watch(
    tasks: Annotated[list[str], typer.Argument(metavar="TASK...", help="Ids, or unique beginnings or ends of them.")],
    json: JsonLines = False,
) -> None:
    """Follow tasks to their end; what has happened already is shown first.

    Exit code: 0 all succeeded, 1 one failed, 5 one was cancelled, 130 after Ctrl-C, which leaves them running.

    Example:

      longstride watch 3f9a12bc
    """
    with connect(say) as deployment:
        ids = list(dict.fromkeys(deployment.reader.find(name).id for name in tasks))
        ends = follow(deployment, ids, json=json)
    raise typer.Exit(exit_codes.of_outcomes([end.outcome for end in ends]))
