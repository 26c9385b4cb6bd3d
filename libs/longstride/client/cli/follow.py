"""Following tasks to their end, on a screen or as JSON Lines."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import NoReturn

import typer

from longstride.agent.events import store
from longstride.client.cli import exit_codes
from longstride.client.connect import Deployment
from longstride.client.outbox_client import outcome_of
from longstride.client.port import TaskHandle
from longstride.client.screen import units
from longstride.client.screen.console import out, say, show, show_json_line
from longstride.client.screen.live import LiveView
from longstride.client.screen.program import program
from longstride.client.screen.verdict import verdict
from longstride.contracts.v1.events import TaskEnded


def follow(deployment: Deployment, task_ids: Sequence[str], *, json: bool, intro: bool = True) -> list[TaskEnded]:
    """Show what happens to tasks until all have ended. Ctrl-C stops the showing, not the tasks.

    Raises:
        typer.Exit: detached.
    """
    try:
        with ExitStack() as stack:
            view = None if json else stack.enter_context(LiveView(list(task_ids), intro=intro))
            for task_id, seq, event in deployment.reader.follow(task_ids):
                if view:
                    view.show(task_id, seq, event)
                else:
                    kind, payload = store(event)
                    show_json_line({"task_id": task_id, "seq": seq, "type": kind, **payload})
    except KeyboardInterrupt:
        detach(task_ids)
    return [outcome_of(deployment.reader, deployment.reader.head(task_id)) for task_id in task_ids]


def wait(handles: Sequence[TaskHandle], *, json: bool) -> list[TaskEnded]:
    """Where there is no database to follow in: wait for the outcomes alone."""
    say("no LONGSTRIDE_DATABASE_URL: waiting for the outcome without its steps")
    try:
        ends = [handle.outcome() for handle in handles]
    except KeyboardInterrupt:
        detach([handle.task_id for handle in handles])
    for handle, end in zip(handles, ends, strict=True):
        shown = {"task_id": handle.task_id, "type": "task_ended", **end.model_dump(mode="json")}
        if json:
            show_json_line(shown)
        else:
            show(f"{handle.task_id}  {_ending(end)}  answer {end.answer}  reward {units.reward(end.reward)}")
    return ends


def _ending(end: TaskEnded) -> str:
    found = verdict(end.outcome, end.reason)
    return found.text if found.unchecked else f"{found.text}: {end.reason}"


def detach(task_ids: Sequence[str]) -> NoReturn:
    """The person has seen enough."""
    names = " ".join(units.short(task_id) for task_id in task_ids)
    ending = f"   {program()} cancel {names}" if len(task_ids) == 1 else ""
    say(f"detached; it goes on. {program()} watch {names}{ending}")
    raise typer.Exit(exit_codes.DETACHED)


def suggest(task_id: str) -> None:
    """What one may want to do next; only where a person reads along."""
    if out().is_terminal:
        name = units.short(task_id)
        say("\n" + "   ".join(f"{program()} {look} {name}" for look in ("show", "trace", "artifacts")))
