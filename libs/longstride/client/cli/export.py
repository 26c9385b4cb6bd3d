"""``longstride export``: a task's workspace after a step, as a folder or an archive."""

from pathlib import Path
from typing import Annotated

import typer

from longstride.client.cli.options import Json, TaskId
from longstride.client.connect import connect
from longstride.client.screen import units
from longstride.client.screen.console import say, show_json
from longstride.client.step_state import StepState, step_states
from longstride.client.workspace_archive import FORMATS, writer_of
from longstride.client.workspace_export import export as write


def export(
    task: TaskId,
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR|FILE", help=f"A new folder, or a file: {', '.join(FORMATS)}.")
    ],
    at: Annotated[
        int | None,
        typer.Option(
            "--at",
            metavar="STEP",
            min=0,
            help="The state after this step (the last); 0: the inputs.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write a task's workspace as it was after a step. Links that lead outside of it are left out, and named.

    Examples:

      longstride export 3f9a12bc --to ./result

      longstride export 3f9a12bc --at 4 --to step4.zip
    """
    writer_of(to.name)
    with connect(say) as deployment:
        head = deployment.reader.find(task)
        (state,) = step_states(deployment, head, at)
        left_out = write(state, to)
    if json:
        show_json(_document(head.id, state, to, left_out))
    else:
        _tell(state, to, left_out)


def _document(task_id: str, state: StepState, to: Path, left_out: list[str]) -> dict[str, object]:
    manifest = state.snapshot.manifest
    return {
        "task": task_id,
        "step": state.step,
        "to": str(to),
        "files": len(manifest.files),
        "bytes": manifest.size,
        "left_out": left_out,
    }


def _tell(state: StepState, to: Path, left_out: list[str]) -> None:
    if left_out:
        say(f"left out, because they lead outside: {', '.join(left_out[:20])}{' …' if len(left_out) > 20 else ''}")
    manifest = state.snapshot.manifest
    files = f"{len(manifest.files)} file{'' if len(manifest.files) == 1 else 's'}"
    say(f"{files}, {units.size(manifest.size)}, as after step {state.step}, to {to}")
