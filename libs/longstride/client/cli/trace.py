"""``longstride trace``: a task's spans as a tree."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from longstride.client.cli.options import Json, TaskId
from longstride.client.connect import Deployment, connect
from longstride.client.errors import NotFound
from longstride.client.outbox_client import trace_id
from longstride.client.screen import units
from longstride.client.screen.console import out, say, show, show_json
from longstride.observability.span_record import SpanRecord
from longstride.observability.trace_tree import build, essential, render
from longstride.storage.tasks import TaskHead

STEPS = 20


def trace(
    task: TaskId,
    steps: Annotated[
        int, typer.Option("--steps", metavar="N", min=2, help="Steps to draw; others are summed up.")
    ] = STEPS,
    everything: Annotated[
        bool, typer.Option("--all", help="Also how each message travelled: sent, processed, decided on.")
    ] = False,
    json: Json = False,
) -> None:
    """Show what happened in a task as a tree of spans: every plan, model call, tool call, check and reflection.

    Each line: offset from the start, duration, status, name, service and what matters of it.

    Examples:

      longstride trace 3f9a12bc

      longstride trace 3f9a12bc --all

      longstride trace 3f9a12bc --json | jq '.spans[] | select(.status == "error")'
    """
    with connect(say) as deployment:
        head = deployment.reader.find(task)
        spans = spans_of(deployment, head)
        if json:
            show_json({"task_id": head.id, "trace_id": trace_id(head), "spans": [asdict(span) for span in spans]})
        elif not spans:
            raise NotFound(f"{units.short(head.id)} has no spans yet; they are written a moment after they end")
        else:
            draw(spans, steps, everything)


def spans_of(deployment: Deployment, head: TaskHead) -> list[SpanRecord]:
    """What was recorded of a task."""
    with deployment.reader.transaction() as uow:
        return uow.spans.for_task(head.id)


def draw(spans: list[SpanRecord], steps: int = STEPS, everything: bool = False) -> None:
    """Print the tree."""
    tree = build(spans) if everything else essential(build(spans))
    console = out()
    coloured = console.is_terminal and not console.no_color
    show(Text.from_ansi(render(tree, console.width, coloured, steps), no_wrap=True))
