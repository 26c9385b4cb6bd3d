"""``longstride artifacts``: the files of a task."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from longstride.client.cli.options import Json, TaskId
from longstride.client.connect import Deployment, connect
from longstride.client.errors import NotFound, UsageProblem
from longstride.client.failures import translated
from longstride.client.screen import units
from longstride.client.screen.console import cell, say, show, show_json
from longstride.client.screen.table import table
from longstride.storage.artifact_rows import ArtifactEntry

OUTPUT = "output"


def artifacts(
    task: TaskId,
    get: Annotated[str | None, typer.Option("--get", metavar="NAME", help="Fetch this one: its name or key.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to (its name, here); - is stdout.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also inputs, workspaces, contexts, observations and token records.")
    ] = False,
    json: Json = False,
) -> None:
    """List the files a task handed in, or fetch one.

    Examples:

      longstride artifacts 3f9a12bc

      longstride artifacts 3f9a12bc --get report.csv -o -
    """
    with connect(say) as deployment:
        head = deployment.reader.find(task)
        with deployment.reader.transaction() as uow:
            entries = uow.artifacts.for_task(head.id, kind=None if everything or get else OUTPUT)
        if get is not None:
            _fetch(deployment, _named(entries, get), output)
        elif json:
            show_json([_document(deployment, entry) for entry in entries])
        elif entries:
            show(_table(deployment, entries))
        else:
            say(f"{units.short(head.id)} handed in no files; --all lists what the task left besides")


def _named(entries: list[ArtifactEntry], name: str) -> ArtifactEntry:
    """The last one of that name: a task may hand a file in again."""
    found = [entry for entry in entries if name in (entry.name, entry.ref.key, entry.ref.sha256)]
    if not found:
        names = ", ".join(sorted({entry.name for entry in entries if entry.name})) or "none has a name"
        raise NotFound(f"no artifact {name!r}; there is: {names}")
    return found[-1]


def _fetch(deployment: Deployment, entry: ArtifactEntry, output: Path | None) -> None:
    if deployment.artifacts is None:
        raise UsageProblem(
            "no artifact store is configured: set LONGSTRIDE_S3_ENDPOINT, _ACCESS_KEY, _SECRET_KEY, _BUCKET"
        )
    with translated():
        data = deployment.artifacts.get(entry.ref)
    if str(output) == "-":
        sys.stdout.buffer.write(data)
        return
    target = output or Path(Path(entry.name or entry.ref.sha256).name)
    try:
        with target.open("xb" if output is None else "wb") as file:
            file.write(data)
    except FileExistsError as error:
        raise UsageProblem(f"{str(target)!r} exists; say -o {str(target)!r} to overwrite it") from error
    except OSError as error:
        raise UsageProblem(f"{str(target)!r} cannot be written: {error.strerror}") from error
    say(f"{units.size(len(data))} to {target}")


def _table(deployment: Deployment, entries: list[ArtifactEntry]) -> Table:
    grid = table("name", "kind", ">step", ">size")
    grid.add_column("where", overflow="fold")
    for entry in entries:
        step = str(entry.step) if entry.step else ""
        where = Text(deployment.where(entry.ref.key), "faint")
        grid.add_row(cell(entry.name, "name"), entry.kind, step, units.size(entry.ref.size), where)
    return grid


def _document(deployment: Deployment, entry: ArtifactEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "kind": entry.kind,
        "step": entry.step,
        **entry.ref.model_dump(mode="json"),
        "where": deployment.where(entry.ref.key),
    }
