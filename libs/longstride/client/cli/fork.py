"""``longstride fork``: a new task that starts from a past step of another."""

from typing import Annotated

import typer
from pydantic import ValidationError

from longstride.client.cli import exit_codes
from longstride.client.cli.follow import follow, suggest
from longstride.client.cli.options import JsonLines, TaskId
from longstride.client.connect import connect
from longstride.client.errors import NotFound, UsageProblem
from longstride.client.policy_name import seen_from_here
from longstride.client.screen import units
from longstride.client.screen.console import say, show, show_json_line
from longstride.client.step_view import history
from longstride.contracts.envelope import explain
from longstride.contracts.v1.commands import SubmitTask

OWN_TO_A_TASK = {"idempotency_key": None, "group_id": None, "parent_task_id": None}


def fork(
    task: TaskId,
    at: Annotated[int, typer.Option("--at", metavar="STEP", min=1, help="Start from the state after this step.")],
    instruction: Annotated[
        str | None, typer.Argument(metavar="INSTRUCTION", help="What to do now (the same).", show_default=False)
    ] = None,
    policy: Annotated[str | None, typer.Option("--policy", "-p", metavar="NAME", help="Who thinks (the same).")] = None,
    temperature: Annotated[float | None, typer.Option(metavar="T", help="Of the sampling (the same).")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Print the new task's id, do not follow it.")] = False,
    json: JsonLines = False,
) -> None:
    """Start a new task from another one's context and workspace after a step, with its checks and limits.

    Exit code: as `longstride run`.

    Examples:

      longstride fork 3f9a12bc --at 4

      longstride fork 3f9a12bc --at 4 "Use the median instead." --policy builtin
    """
    with connect(say) as deployment:
        head = deployment.reader.find(task)
        past = history(event for _, event in deployment.reader.events(head.id))
        seen = [number for number, step in past.steps.items() if step.observation]
        if at not in seen:
            told = ", ".join(map(str, seen)) or "none yet"
            raise NotFound(f"{units.short(head.id)} has no step {at} with an observation; it has: {told}")
        source = deployment.reader.state(head).submit
        handle = deployment.client.submit(
            _forked(source, head.id, at, instruction, policy, temperature),
            tenant=head.tenant,
            session_id=head.session_id,
        )
        handle.accepted()
        if detach:
            show_json_line({"task_id": handle.task_id}) if json else show(handle.task_id)
            return
        ends = follow(deployment, [handle.task_id], json=json)
        if not json:
            suggest(handle.task_id)
    raise typer.Exit(exit_codes.of_outcomes([end.outcome for end in ends]))


def _forked(
    source: SubmitTask, task_id: str, step: int, instruction: str | None, policy: str | None, temperature: float | None
) -> SubmitTask:
    changes: dict[str, object] = {**OWN_TO_A_TASK, "fork_of": (task_id, step)}
    if instruction is not None:
        changes["instruction"] = instruction
    if policy is not None:
        changes["policy"] = seen_from_here(policy)
    if temperature is not None:
        changes["sampling"] = {**source.sampling.model_dump(), "temperature": temperature}
    try:
        return SubmitTask.model_validate({**source.model_dump(), **changes})
    except ValidationError as error:
        raise UsageProblem(f"not a task: {explain(error)}") from error
