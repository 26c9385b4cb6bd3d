"""``longstride run`` and ``longstride submit``: publish a task."""

import typer

from longstride.client.cli import exit_codes
from longstride.client.cli.follow import follow, suggest, wait
from longstride.client.cli.submission import Submission, takes_task
from longstride.client.connect import connect
from longstride.client.errors import NoAnswer
from longstride.client.port import TaskHandle
from longstride.client.screen.console import say, show, show_json_line

PROMPT_S = 10.0
"""How long ``submit`` waits to hear that the planner has the task."""


@takes_task
def run(submission: Submission) -> None:
    """Publish a task and follow it to its end.

    Exit code: 0 succeeded, 1 failed, 5 cancelled, 130 after Ctrl-C, which leaves the task running.

    Examples:

      longstride run "What is the total of amount in orders.csv?" --input orders.csv --expect-number 1234.5

      longstride run "Make the tests pass." -i app.py -i test_app.py --check "python3 -m unittest" --steps 20

      longstride run "Summarise notes.txt in one line." -i notes.txt --policy remote:http://localhost:8000/v1 --json

      longstride run --terminal-task examples/terminal/log-triage --policy remote:http://localhost:8000/v1
    """
    with connect(say) as deployment:
        handles = submission.publish(deployment)
        for handle in handles:
            _accepted(handle)
        if deployment.readable:
            ends = follow(deployment, [handle.task_id for handle in handles], json=submission.json)
        else:
            ends = wait(handles, json=submission.json)
        if not submission.json:
            suggest(handles[-1].task_id)
    raise typer.Exit(exit_codes.of_outcomes([end.outcome for end in ends]))


def _accepted(handle: TaskHandle) -> None:
    if handle.accepted().duplicate:
        say(f"this idempotency key was used before: {handle.task_id} is that task")


@takes_task
def submit(submission: Submission) -> None:
    """Publish a task and print its id.

    Examples:

      longstride submit "Count the rows of orders.csv." --input orders.csv --key nightly-2026-01-31

      longstride watch $(longstride submit "Count the rows of orders.csv." -i orders.csv)
    """
    with connect(say) as deployment:
        for handle in submission.publish(deployment):
            duplicate = _answered(handle)
            if submission.json:
                show_json_line({"task_id": handle.task_id, "session_id": handle.session_id, "duplicate": duplicate})
            else:
                show(handle.task_id)


def _answered(handle: TaskHandle) -> bool | None:
    """Whether it is a task that existed; ``None``: nobody has said, and the message waits on its queue."""
    try:
        return handle.accepted(PROMPT_S).duplicate
    except NoAnswer as error:
        say(str(error))
        return None
