"""``cancel``, ``pause``, ``resume``, ``message`` and ``approve``: words to a running task."""

import time
from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from longstride.client import person
from longstride.client.cli.options import Json, TaskId
from longstride.client.connect import Deployment, connect
from longstride.client.errors import NotFound, WrongState
from longstride.client.port import DEFAULT_TENANT
from longstride.client.screen import units
from longstride.client.screen.console import say, show, show_json
from longstride.client.screen.program import program
from longstride.client.screen.verdict import ending
from longstride.client.soundness import message as valid
from longstride.client.step_view import History, history
from longstride.contracts.model import Contract
from longstride.contracts.v1.commands import ApproveAction, CancelTask, MessageTask, PauseTask, ResumeTask
from longstride.storage.tasks import TaskHead

EFFECT_S = 5.0
"""How long to look for the effect before saying only that it was asked for."""
POLL_S = 0.05

Tenant = Annotated[
    str | None,
    typer.Option("--tenant", metavar="NAME", help="Whose task it must be; told only where no database can be read."),
]
"""A database tells whose it is; then another one's task is not found."""
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; it is recorded.")]


def cancel(task: TaskId, reason: Reason = None, tenant: Tenant = None, json: Json = False) -> None:
    """End a task as cancelled, whatever it is doing; a tool call that runs is killed.

    Example:

      longstride cancel 3f9a12bc --reason "wrong file"
    """
    command = valid(CancelTask, reason=reason) if reason else CancelTask()
    _steer(task, command, "cancelled", tenant, json)


def pause(task: TaskId, tenant: Tenant = None, json: Json = False) -> None:
    """Park a task after the call in flight; its clock stops and it holds no worker.

    Example:

      longstride pause 3f9a12bc
    """
    _steer(task, PauseTask(), "parked", tenant, json)


def resume(task: TaskId, tenant: Tenant = None, json: Json = False) -> None:
    """Go on with a paused task.

    Example:

      longstride resume 3f9a12bc
    """
    _steer(task, ResumeTask(), "running", tenant, json)


def message(
    task: TaskId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say.")],
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Tell a running task something; the agent reads it before its next step.

    Example:

      longstride message 3f9a12bc "The amounts are in cents."
    """
    _steer(task, valid(MessageTask, text=text), None, tenant, json)


def approve(
    task: TaskId,
    step: Annotated[int | None, typer.Option("--step", metavar="N", help="Of the action (the one that waits).")] = None,
    deny: Annotated[bool, typer.Option("--deny", help="Refuse it; the agent is told and goes on.")] = False,
    reason: Reason = None,
    json: Json = False,
) -> None:
    """Decide an action that waits for a person.

    Examples:

      longstride approve 3f9a12bc --step 2

      longstride approve 3f9a12bc --step 2 --deny --reason "not on a Friday"
    """

    def decide(deployment: Deployment, head: TaskHead) -> ApproveAction:
        past = history(event for _, event in deployment.reader.events(head.id))
        waiting = past.last
        if waiting is None or waiting.status != "waiting" or step not in (None, waiting.number):
            raise WrongState(undecidable(head, past, step))
        return valid(ApproveAction, step=waiting.number, approved=not deny, reason=reason or "", by=person.name())

    with connect(say) as deployment:
        head = deployment.reader.find(task)
        command = decide(deployment, head)
        deployment.client.send(command, head.id, tenant=head.tenant)
        _report(_settled(deployment, head, lambda now: now.version > head.version), command, json)


def undecidable(head: TaskHead, past: History, number: int | None) -> str:
    """Why there is nothing to decide: what was decided already, and what waits instead."""
    name, last = units.short(head.id), past.last
    decided = [step for step in past.steps.values() if step.decision and number in (None, step.number)]
    done = f"step {decided[-1].number} was {decided[-1].decision}" if decided else ""
    if last and last.status == "waiting":
        return f"{done or f'step {number} does not wait for approval'}; step {last.number} of {name} does wait"
    if head.ended_at is not None:
        return "; ".join(filter(None, (too_late(head, past), done)))
    return "; ".join(filter(None, (f"nothing of {name} waits for approval", done)))


def too_late(head: TaskHead, past: History) -> str:
    """How a task ended that is to do something else."""
    told = ending(past.ended) if past.ended else head.status
    return f"{units.short(head.id)} has ended: {told}, {units.ago(head.ended_at)} ago"


def _require_open(deployment: Deployment, head: TaskHead, wanted: str = "") -> None:
    """
    Raises:
        WrongState: it has ended, and otherwise than was wanted.
    """
    if head.ended_at is None or head.status == wanted:
        return
    past = history(event for _, event in deployment.reader.events(head.id))
    name = units.short(head.id)
    raise WrongState(
        f"{too_late(head, past)}; a new task goes on from one of its steps: {program()} fork {name} --at N"
    )


def _steer(name: str, command: Contract, wanted: str | None, tenant: str | None, json: bool) -> None:
    """Send it. ``wanted``: the status that shows its effect; ``None``: none does."""
    sent = person.signed(command)
    with connect(say) as deployment:
        if not deployment.readable:
            deployment.client.send(sent, name, tenant=tenant or DEFAULT_TENANT)
            return _report_unseen(name, sent, json)
        head = _found(deployment, name, tenant)
        _require_open(deployment, head)
        deployment.client.send(sent, head.id, tenant=head.tenant)
        if wanted is not None:
            head = _settled(deployment, head, lambda now: now.ended_at is not None or now.status == wanted)
        if wanted != "running":  # a task that was resumed may well have ended
            _require_open(deployment, head, wanted or "")
        if wanted not in (None, head.status) and head.ended_at is None:
            say(f"asked for; {_later(sent, head)}")
        return _report(head, sent, json)


def _later(sent: Contract, head: TaskHead) -> str:
    """When the effect shows that has not shown yet."""
    if head.status == "queued":
        return "it shows once there is a place for the task among the running ones"
    return LATER[type(sent)]


LATER: Mapping[type[Contract], str] = {
    CancelTask: "it shows once a planner has read it",
    PauseTask: "it shows once the call in flight is over",
    ResumeTask: "it shows once a planner has read it, and goes on waiting for an approval or for parts where it did",
}


def _found(deployment: Deployment, name: str, tenant: str | None) -> TaskHead:
    """
    Raises:
        NotFound: there is no such task, or it is another tenant's.
    """
    head = deployment.reader.find(name)
    if tenant not in (None, head.tenant):
        raise NotFound(
            f"no task {name!r} of the tenant {tenant!r}; `{program()} tasks --tenant {tenant}` lists what there is"
        )
    return head


def _settled(deployment: Deployment, head: TaskHead, done: Callable[[TaskHead], bool]) -> TaskHead:
    """The task once the effect shows, or as it is after a while: a call in flight may take its time."""
    deadline = time.monotonic() + EFFECT_S
    while not done(head) and time.monotonic() < deadline:
        time.sleep(POLL_S)
        head = deployment.reader.head(head.id)
    return head


def _report_unseen(name: str, sent: Contract, json: bool) -> None:
    if json:
        show_json({"task_id": name, "status": None, "sent": sent.model_dump(mode="json")})
    say("sent; what comes of it can only be seen with LONGSTRIDE_DATABASE_URL")


def _report(head: TaskHead, sent: Contract, json: bool) -> None:
    if json:
        show_json({"task_id": head.id, "status": head.status, "sent": sent.model_dump(mode="json")})
    else:
        show(f"{units.short(head.id)}  {head.status}")
