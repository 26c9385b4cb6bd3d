"""``longstride demo``: three real tasks on this machine, start to finish."""

import fcntl
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from longstride.client.cli import exit_codes
from longstride.client.cli.doctor import row
from longstride.client.cli.follow import follow
from longstride.client.cli.options import JsonLines
from longstride.client.cli.trace import draw, spans_of
from longstride.client.connect import Deployment
from longstride.client.demo import EXAMPLES, DemoTask, load
from longstride.client.embedded_stack import EmbeddedStack
from longstride.client.errors import ClientError
from longstride.client.health import examine
from longstride.client.input_files import InputFiles
from longstride.client.screen import units
from longstride.client.screen.console import cell, err, say, show
from longstride.client.screen.program import program, relative
from longstride.client.screen.table import table
from longstride.client.screen.verdict import verdict
from longstride.client.settings import ClientSettings
from longstride.client.settings import load as load_settings
from longstride.client.step_view import history
from longstride.contracts.ids import new_id
from longstride.contracts.v1.commands import SubmitTask
from longstride.contracts.v1.events import TaskEnded
from longstride.contracts.v1.limits import SandboxLimits
from longstride.observability.span_record import SpanRecord
from longstride.storage.tasks import TaskHead

HOME = Path(".longstride") / "demo"
TRACE_STEPS = 8
SPANS_S = 6.0
"""Spans are written in the background: how long the trace may take to be whole."""


def demo(
    tasks: Annotated[
        Path, typer.Option("--tasks", metavar="FILE", help="A JSON list of tasks.", show_default=False)
    ] = EXAMPLES,
    home: Annotated[
        Path | None, typer.Option("--home", metavar="DIR", help="The demo's own folder (.longstride/demo), made anew.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", "-p", metavar="NAME", help="Who thinks, instead of the tasks' own.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack running.")] = False,
    json: JsonLines = False,
) -> None:
    """Start an embedded stack in a folder of its own, carry out three real tasks, and show what became of them.

    The tasks ask about tables of a small shop and of sensors; each is answered by real commands in a real sandbox, and
    one needs a correction: its first command fails, the error is read, and the next one works. Nothing else that is
    configured or runs on this machine is touched, and the stack ends with the demo.

    Exit code: 0 all succeeded, 1 one did not.

    Examples:

      longstride demo

      longstride demo --keep --home /tmp/longstride-demo
    """
    started = time.monotonic()
    wanted = load(tasks)
    settings = ClientSettings(home=(home or _default_home()).absolute(), amqp_url=None, database_url=None)
    _refuse_without(settings)
    with _fresh_stack(settings, keep) as deployment:
        heads, ends = _carry_out(deployment, wanted, policy, json)
        if not json:
            _summary(deployment, heads, ends, time.monotonic() - started)
    if not json:
        _next_steps(settings, heads, keep)
    raise typer.Exit(exit_codes.of_outcomes([end.outcome for end in ends]))


def _default_home() -> Path:
    configured = load_settings()
    return configured.home / "demo" if "home" in configured.model_fields_set else HOME


def _refuse_without(settings: ClientSettings) -> None:
    missing = [finding for finding in examine(settings, trial=False) if finding.state == "missing"]
    for finding in missing:
        err().print(row(finding))
    if missing:
        raise ClientError("the demo needs what is missing above; `longstride doctor` looks again")


@contextmanager
def _fresh_stack(settings: ClientSettings, keep: bool) -> Iterator[Deployment]:
    stack = EmbeddedStack(settings.home)
    with _alone(settings.home):
        stack.down()
        _clear(settings.home)
        try:
            with Deployment(settings, say) as deployment:
                began = time.monotonic()
                assert deployment.stack.pid
                say(f"it is ready after {units.seconds(time.monotonic() - began)}")
                yield deployment
        finally:
            if not keep:
                stack.down()


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """One demo a folder at a time: it begins by emptying it."""
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        lock = home.with_name(f".{home.name}.lock").open("wb")
    except OSError as error:
        raise ClientError(f"{home} cannot hold a demo: {error.strerror}; name another with --home") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ClientError(f"a demo runs in {home} already; name another folder with --home") from error
        yield


def _clear(home: Path) -> None:
    """Remove what an earlier demo left, and nothing that is not a demo's."""
    if home.exists() and not home.is_dir():
        raise ClientError(f"{home} is a file; name a folder with --home")
    if not home.exists() or not any(home.iterdir()):
        return
    if not (home / "stack.lock").exists():
        raise ClientError(f"{home} is not a demo's folder, and is left alone; name another with --home")
    shutil.rmtree(home)


def _carry_out(
    deployment: Deployment, wanted: list[DemoTask], policy: str | None, json: bool
) -> tuple[list[TaskHead], list[TaskEnded]]:
    ends: list[TaskEnded] = []
    heads: list[TaskHead] = []
    session = new_id("session")
    for task in wanted:
        if not json:
            show(Text())
        handle = deployment.client.submit(_submit(deployment, task, policy, session), session_id=session)
        handle.accepted()
        ends += follow(deployment, [handle.task_id], json=json)
        heads.append(deployment.reader.head(handle.task_id))
    return heads, ends


def _submit(deployment: Deployment, task: DemoTask, policy: str | None, session: str) -> SubmitTask:
    files = InputFiles(deployment.artifacts, session, SandboxLimits().disk_mb)
    inputs = files.of([f"{file}:{path}" for file, path in task.inputs])
    chosen = {"policy": policy} if policy else {}
    return SubmitTask.model_validate({**task.fields, **chosen, "inputs": inputs})


def _summary(deployment: Deployment, heads: list[TaskHead], ends: list[TaskEnded], took_s: float) -> None:
    show(Text(), _outcomes(heads, ends))
    head = _most_telling(deployment, heads)
    spans = _whole_trace(deployment, head)
    if spans:
        show(Text(f"\nThe trace of {units.short(head.id)}:", "strong"))
        draw(spans, TRACE_STEPS)
    show(Text())
    show(Text.assemble(("artifacts ", "faint"), deployment.where(heads[0].session_id)))
    show(Text.assemble(("took      ", "faint"), units.seconds(took_s)))


def _outcomes(heads: list[TaskHead], ends: list[TaskEnded]) -> Table:
    grid = table("task", "outcome", "answer", ">reward", ">steps", ">tokens", ">time", "*instruction")
    for head, end in zip(heads, ends, strict=True):
        took = (head.ended_at - head.created_at).total_seconds() if head.ended_at and head.created_at else None
        grid.add_row(
            Text(units.short(head.id), "name"),
            Text(*verdict(end.outcome, end.reason)),
            cell(end.answer, most=20),
            units.reward(end.reward),
            str(end.steps),
            f"{end.usage.tokens:,}",
            units.seconds(took),
            cell(head.instruction),
        )
    return grid


def _most_telling(deployment: Deployment, heads: list[TaskHead]) -> TaskHead:
    """The first task in which something was corrected."""
    for head in heads:
        steps = history(event for _, event in deployment.reader.events(head.id)).steps.values()
        if any(step.corrects for step in steps):
            return head
    return heads[0]


def _whole_trace(deployment: Deployment, head: TaskHead) -> list[SpanRecord]:
    """The task's spans, once no more have come for a moment."""
    deadline, spans, quiet = time.monotonic() + SPANS_S, spans_of(deployment, head), 0
    while quiet < 5 and time.monotonic() < deadline:
        time.sleep(0.1)
        found = spans_of(deployment, head)
        quiet = quiet + 1 if spans and len(found) == len(spans) else 0
        spans = found
    return spans


def _next_steps(settings: ClientSettings, heads: list[TaskHead], keep: bool) -> None:
    name = units.short(heads[0].id)
    prefix = f"LONGSTRIDE_HOME={relative(settings.home)} {program()}"
    state = "runs on" if keep else "has stopped; these start it again"
    show(Text(f"\nTo look again (the stack {state}):", "strong"))
    for command in (f"show {name}", f"trace {name}", f"fork {name} --at 1", "tasks", "down"):
        show(f"  {prefix} {command}")
    show(Text("\nA task of your own:", "strong"))
    orders = relative(EXAMPLES.parent / "shop" / "orders.csv")
    show(f'  {program()} run "Find the highest amount in orders.csv." --input {orders}')
