"""``longstride dead-letters``: messages that could not be understood or handled."""

import json as jsonlib
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from longstride.client.cli.options import Json
from longstride.client.connect import connect
from longstride.client.errors import ClientError, NotFound
from longstride.client.screen import units
from longstride.client.screen.console import cell, say, show, show_json
from longstride.client.screen.table import table
from longstride.storage.dead_letters import DeadLetter

Letter = Annotated[int, typer.Argument(metavar="ID", help="Its number in the list.", min=1)]
app = typer.Typer(
    help="Messages that could not be understood or handled: they are kept whole, with the reason.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("list")
def list_letters(
    everything: Annotated[bool, typer.Option("--all", help="Also those that were replayed.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many.")] = 20,
    json: Json = False,
) -> None:
    """List dead letters, the newest first."""
    with connect(say) as deployment, deployment.reader.transaction() as uow:
        letters = uow.dead_letters.list(limit=limit, replayed=everything)
    if json:
        show_json([_document(letter) for letter in letters])
    elif letters:
        show(_table(letters))
    else:
        say("no dead letters")


@app.command("show")
def show_letter(letter: Letter, json: Json = False) -> None:
    """Show one with its reason, headers and body."""
    with connect(say) as deployment, deployment.reader.transaction() as uow:
        found = uow.dead_letters.get(letter)
    if found is None:
        raise NotFound(f"there is no dead letter {letter}")
    if json:
        show_json(_document(found))
        return
    show(Text.assemble((f"{found.id}  ", "name"), (found.type or "unknown type", "strong"), f"  from {found.queue}"))
    show(Text("\nreason", "faint"), found.reason)
    show(Text("\nheaders", "faint"), jsonlib.dumps(found.headers, indent=2))
    show(Text("\nbody", "faint"), _pretty(found.body))


@app.command()
def replay(
    letters: Annotated[list[int], typer.Argument(metavar="ID...", help="Numbers in the list.", min=1)],
    json: Json = False,
) -> None:
    """Put letters back into the queues they came from, once each.

    Mend the cause first: a message that cannot be understood comes back as a new dead letter.
    """
    from longstride.messaging.dead_letters import CannotReplay
    from longstride.messaging.dead_letters import replay as replay_letter
    from longstride.messaging.outbox import Outbox

    with connect(say) as deployment:
        for number in letters:
            try:
                with deployment.reader.transaction() as uow:
                    letter = replay_letter(uow, Outbox(), number)
            except CannotReplay as error:
                raise ClientError(str(error)) from error
            if json:
                show_json({"id": number, "queue": letter.queue, "message_id": letter.message_id})
            else:
                show(f"{number}  back to {letter.queue}")


def _table(letters: list[DeadLetter]) -> Table:
    grid = table(">id", "queue", "type", ">age", "*reason")
    for letter in letters:
        replayed = "replayed; " if letter.replayed_at else ""
        grid.add_row(
            Text(str(letter.id), "name"),
            cell(letter.queue),
            cell(letter.type),
            units.ago(letter.dead_at),
            cell(replayed + letter.reason),
        )
    return grid


def _document(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "queue": letter.queue,
        "message_id": letter.message_id,
        "type": letter.type,
        "reason": letter.reason,
        "body": letter.body.decode(errors="backslashreplace"),
        "headers": letter.headers,
        "dead_at": letter.dead_at,
        "replayed_at": letter.replayed_at,
    }


def _pretty(body: bytes) -> str:
    text = body.decode(errors="backslashreplace")
    try:
        return jsonlib.dumps(jsonlib.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text
