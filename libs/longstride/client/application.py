"""The command line ``longstride``: a table of commands, each loaded when it is asked for, and what is said when one fails."""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from inspect import cleandoc
from textwrap import wrap
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from longstride.client.cli.exit_codes import CODES
from longstride.client.did_you_mean import did_you_mean
from longstride.client.errors import ClientError
from longstride.client.working_directory import REMOVED, working_directory

WORK, SEE, STEER, LEARN, RUN = "Tasks", "Looking", "Steering", "Learning", "The stack"
CLI = "longstride.client.cli"
OURS = ("longstride", "services")
"""Whose modules are missed only where there is a bug."""


class Entry(NamedTuple):
    """A command: its name, where its function or sub-application is, its place in the help, and one sentence."""

    name: str
    module: str
    attribute: str
    panel: str
    help: str


COMMANDS = (
    Entry("run", "run", "run", WORK, "Publish a task and follow it to its end."),
    Entry("submit", "run", "submit", WORK, "Publish a task and print its id."),
    Entry("terminal-task", "terminal_task", "app", WORK, "Check tasks in the layout of Terminal-Bench and Harbor."),
    Entry("watch", "watch", "watch", WORK, "Follow running tasks, from their first step on."),
    Entry("tasks", "tasks", "tasks", SEE, "List tasks."),
    Entry("show", "show", "show_task", SEE, "A task's steps, budget, artifacts and trace id."),
    Entry("trace", "trace", "trace", SEE, "A task's spans as a tree."),
    Entry("artifacts", "artifacts", "artifacts", SEE, "List and fetch the files a task handed in."),
    Entry("diff", "diff", "diff", SEE, "What changed in a task's workspace between two steps."),
    Entry("export", "export", "export", SEE, "A task's workspace after a step, as a folder or an archive."),
    Entry("cancel", "steering", "cancel", STEER, "End a task."),
    Entry("pause", "steering", "pause", STEER, "Park a task; its clock stops."),
    Entry("resume", "steering", "resume", STEER, "Go on with a paused task."),
    Entry("message", "steering", "message", STEER, "Tell a running task something."),
    Entry("approve", "steering", "approve", STEER, "Decide an action that waits for a person."),
    Entry("fork", "fork", "fork", STEER, "Start a new task from a past step of another."),
    Entry("feedback", "feedback", "feedback", LEARN, "Score a finished task."),
    Entry("policy", "policy", "app", LEARN, "List, train, update and export policies."),
    Entry("demo", "demo", "demo", RUN, "Three real tasks on this machine, start to finish."),
    Entry("up", "stack", "up", RUN, "Start the embedded stack."),
    Entry("down", "stack", "down", RUN, "Stop the embedded stack."),
    Entry("doctor", "doctor", "doctor", RUN, "Say what is missing on this machine and how to get it."),
    Entry("tools", "tools", "tools", RUN, "The tools that agents may call, and their arguments."),
    Entry("rules", "rules", "app", RUN, "Rules on tools: which calls are allowed, asked about, limited."),
    Entry("mcp", "mcp", "app", RUN, "MCP servers as tools: add, pin, check, remove."),
    Entry("audit", "audit", "app", RUN, "Who did what: verify, export, retain, hold."),
    Entry("dead-letters", "dead_letters", "app", RUN, "Messages that could not be handled: list, show, replay."),
)
"""In the order of the help."""

PURPOSE = """\
Longstride runs long tasks with tool-using agents: durable, traced, budgeted, and learned from.

With nothing configured it is one process on this machine, with its data in $LONGSTRIDE_HOME
(~/.local/share/longstride). LONGSTRIDE_AMQP_URL, LONGSTRIDE_DATABASE_URL and LONGSTRIDE_S3_*
name a full stack instead."""

ENDING = """\
Start here: longstride demo            Each command: longstride COMMAND --help, --json for programs
"""
COLUMNS = 100


class Commands(TyperGroup):
    """Lists commands from the table; loads the one that is run."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names, in the table's order."""
        return [entry.name for entry in COMMANDS]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The overview. Written here rather than by rich, whose Markdown and traceback parts alone take 0.1 s to load."""
        formatter.write(overview() + "\n")

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """For the help alone: name and sentence, nothing loaded."""
        entry = _entry(cmd_name)
        return entry and TyperCommand(entry.name, help=entry.help, rich_help_panel=entry.panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command to run, loaded; of one that is not there, what may have been meant."""
        if args and _entry(args[0]) is None and not args[0].startswith("-"):
            hint = did_you_mean(args[0], (entry.name for entry in COMMANDS))
            ctx.fail("; ".join(filter(None, (f"No such command {args[0]!r}", hint))))
        name, _, rest = super().resolve_command(ctx, args)
        entry = _entry(name or "")
        return name, entry and load(entry), rest


def overview() -> str:
    """What ``longstride --help`` shows."""
    heading = typer.style if "NO_COLOR" not in os.environ else _unstyled
    panels = {entry.panel: [e for e in COMMANDS if e.panel == entry.panel] for entry in COMMANDS}
    lines = ["Usage: longstride COMMAND [OPTIONS]", "", PURPOSE]
    for panel, entries in panels.items():
        lines += ["", heading(panel, bold=True)]
        lines += [f"  {heading(f'{entry.name:<14}', fg='cyan')} {entry.help}" for entry in entries]
    codes = ", ".join(f"{code.number} {code.word}" for code in CODES)
    return "\n".join([*lines, "", ENDING, *wrap(f"Exit codes: {codes}", COLUMNS)])


def _unstyled(text: str, **_: object) -> str:
    return text


def _entry(name: str) -> Entry | None:
    return next((entry for entry in COMMANDS if entry.name == name), None)


def load(entry: Entry) -> Any:
    """The command behind an entry; what it imports is imported now."""
    found = getattr(import_module(f"{CLI}.{entry.module}"), entry.attribute)
    app = found if isinstance(found, typer.Typer) else _application(found)
    command = typer.main.get_command(app)
    command.name = entry.name
    return command


def _application(function: Callable[..., None]) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    app.command(context_settings=SETTINGS, help=described(function.__doc__ or ""))(function)
    return app


def described(doc: str) -> str:
    """A docstring as help: its ``Example:`` lines as commands, its brackets as brackets."""
    text, _, examples = cleandoc(doc).partition("\n\nExample")
    lines = [line.strip() for line in examples.splitlines()[1:] if line.strip()]
    shown = ["[bold]Examples[/bold]", *(f"[dim]$[/dim] {_literal(line)}" for line in lines)] if lines else []
    return "\n\n".join([_literal(text), "\n".join(shown)])


def _literal(text: str) -> str:
    return text.replace("[", r"\[")


SETTINGS = {"help_option_names": ["-h", "--help"]}
application = typer.Typer(
    cls=Commands,
    help=PURPOSE,
    rich_markup_mode="rich",
    context_settings=SETTINGS,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"longstride {version('longstride')}\n")
        raise typer.Exit


@application.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Options of the program itself."""


def run(arguments: list[str]) -> int:
    """The program; returns its exit code. What goes wrong is a sentence on standard error, with ``--json`` an object."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character is no reason to fail
    json = wants_json(arguments)
    try:
        try:
            return application(args=arguments or ["--help"], prog_name="longstride", standalone_mode=False) or 0
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        return 1  # the reader has all it wanted
    except Exception as error:
        problem = problem_of(error)
        if problem is None:
            raise
    from longstride.client.screen.console import complain, complain_json

    if problem.sentence:  # else the help was asked for by saying nothing, and is shown
        (complain_json if json else complain)(problem.sentence)
    return problem.exit_code


def wants_json(arguments: list[str]) -> bool:
    """Whether what goes wrong is to be JSON too: known before the command line is understood, or when it cannot be."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


class Problem(NamedTuple):
    """What is told of an error, and the program's exit code."""

    sentence: str
    exit_code: int


def _with_help(error: Any) -> str:
    """What typer has against a command line, and where its use is told."""
    told, context = error.format_message().strip(), getattr(error, "ctx", None)
    return f"{told.rstrip('.')} (see `{context.command_path} --help`)" if told and context else told


def problem_of(error: Exception) -> Problem | None:
    """``None``: a bug, which shows its traceback."""
    if isinstance(error, ClientError):
        return Problem(str(error), error.exit_code)
    if hasattr(error, "format_message"):  # typer's own, about options and arguments
        return Problem(_with_help(error), getattr(error, "exit_code", 2))
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return Problem(f"{error.filename}: {error.strerror}", 1)
    if isinstance(error, FileNotFoundError) and working_directory() is None:  # a relative path, made absolute
        return Problem(REMOVED, 2)
    if isinstance(error, ModuleNotFoundError) and error.name and error.name.partition(".")[0] not in OURS:
        from longstride.client.health import extra_of, install

        return Problem(f"the package {error.name} is not installed: {install(extra_of(error.name))}", 1)
    if not isinstance(error, ValueError):
        return None
    from pydantic import ValidationError

    from longstride.contracts.envelope import MessageError, explain

    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        return Problem("an argument is not UTF-8 text", 2)
    if isinstance(error, MessageError):
        return Problem(str(error), 2)
    return Problem(f"{error.title}: {explain(error)}", 1) if isinstance(error, ValidationError) else None
