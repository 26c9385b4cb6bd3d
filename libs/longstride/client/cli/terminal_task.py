"""``longstride terminal-task``: tasks in the folder layout of Terminal-Bench and Harbor."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from longstride.client.cli import exit_codes
from longstride.client.cli.options import JsonLines
from longstride.client.errors import ClientError
from longstride.client.screen.console import out, show, show_json_line
from longstride.client.screen.safe import safe
from longstride.client.screen.symbols import symbols
from longstride.client.terminal.importer import read
from longstride.client.terminal.rehearsal import Rehearsal, Rehearsed, rehearsals
from longstride.sandbox.base import SandboxBackend

app = typer.Typer(
    help="Tasks in the folder layout of Terminal-Bench and Harbor: check that one's own can be done, and that it takes doing.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def terminal_task() -> None:
    """Keeps ``check`` a command of its own."""


@app.command()
def check(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Task folders.")],
    json: JsonLines = False,
) -> None:
    """Run each task's own solution, and an agent that does nothing, in sandboxes on this machine.

    A good task gives the solution the full reward and the idle agent less. Nothing is published.

    Exit code: 0 all are good, 1 one is not.
    """
    good = True
    with rehearsals() as backend:
        for folder in folders:
            good = _checked(folder, backend, json) and good
    raise typer.Exit(exit_codes.OK if good else exit_codes.FAILED)


def _checked(folder: Path, backend: SandboxBackend, json: bool) -> bool:
    """Tell of one folder; one that cannot be read does not keep the others from being checked."""
    try:
        task = read(folder)
        rehearsal = Rehearsal(task, backend)
        try:
            oracle, idle = rehearsal.oracle(), rehearsal.idle()
        finally:
            rehearsal.close()
    except ClientError as error:
        _tell(json, folder, {"good": False, "error": str(error)}, [Text(safe(str(error)), "bad")])
        return False
    good = _passed(oracle) and not _passed(idle) and not idle.result.error
    told = {
        "good": good,
        "solution": _facts(oracle),
        "idle": _facts(idle),
        "notes": list(rehearsal.notes),
    }
    _tell(json, folder, told, _lines(oracle, idle, rehearsal.notes))
    return good


def _passed(run: Rehearsed) -> bool:
    return run.result.passed and not run.result.error


def _facts(run: Rehearsed) -> dict[str, Any]:
    result = run.result
    return {
        "passed": result.passed,
        "reward": run.reward,
        "detail": result.error or result.detail,
        "output": run.output,
    }


def _lines(oracle: Rehearsed, idle: Rehearsed, notes: tuple[str, ...]) -> list[Text]:
    marks = symbols(out().encoding)
    lines = [
        _line("solution", oracle, _passed(oracle)),
        _line("idle agent", idle, not _passed(idle) and not idle.result.error),
    ]
    return [*lines, *(Text(f"  {marks.hint} {safe(note)}", "faint") for note in notes)]


def _line(who: str, run: Rehearsed, as_it_should: bool) -> Text:
    """One run: its reward; where it is not as it should be, why."""
    marks = symbols(out().encoding)
    style = "good" if as_it_should else "bad"
    verdict = "broken" if run.result.error else "passed" if run.result.passed else "failed"
    line = Text.assemble(
        (f"  {marks.good if as_it_should else marks.bad} ", style), f"{who:<11} {verdict}, reward {run.reward:g}"
    )
    if not as_it_should:
        why = "\n".join(filter(None, [run.output, run.result.error or run.result.detail]))
        line.append(safe("\n" + why).replace("\n", "\n      "), "faint")
    return line


def _tell(json: bool, folder: Path, facts: dict[str, Any], lines: list[Text]) -> None:
    if json:
        show_json_line({"folder": str(folder), **facts})
    else:
        show(Text(str(folder), "strong"), *lines)
