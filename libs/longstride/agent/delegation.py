"""Sub-tasks: a task hands parts of itself to other agents, and goes on with their answers."""

from longstride.agent.allowance import parted
from longstride.agent.decision import Decision, Send
from longstride.agent.events import Subtask, SubtaskEnded, SubtasksDelegated, SubtaskStarted
from longstride.agent.message_room import MOST_BYTES, fitting, size
from longstride.agent.task import Task
from longstride.contracts.ids import derived_id
from longstride.contracts.most import clipped
from longstride.contracts.v1.action import Action, Observation
from longstride.contracts.v1.commands import MOST_INSTRUCTION, CancelTask, SubmitTask

MOST_NAME = 64
NEEDS_ROOM = 2048
"""Kept free for what earlier parts say."""
KNOWN = "\n\nKnown so far:"


def delegate(decision: Decision, action: Action) -> str | None:
    """Start the parts that need no other; returns why not, when the request is not sound."""
    try:
        parts = _parse(decision.task, action)
        _check(decision.task, parts)
    except ValueError as error:
        return f"delegate was not carried out: {error}"
    decision.record(SubtasksDelegated(at=decision.now, step=decision.task.step, subtasks=parts))
    release_ready(decision)
    return None


def _parse(task: Task, action: Action) -> tuple[Subtask, ...]:
    raw = action.arguments.get("tasks")
    if not isinstance(raw, list) or not raw:
        raise ValueError("tasks must be a list of at least one {name, instruction, after}")
    return tuple(_part(task, index, item) for index, item in enumerate(raw))


def _part(task: Task, index: int, item: object) -> Subtask:
    if not isinstance(item, dict) or not isinstance(item.get("instruction"), str) or not item["instruction"].strip():
        raise ValueError(f"tasks[{index}] needs an instruction")
    if len(str(item.get("name") or "")) > MOST_NAME:
        raise ValueError(f"tasks[{index}].name has more than {MOST_NAME} characters")
    after = item.get("after") or []
    if not isinstance(after, list) or not all(isinstance(name, str) for name in after):
        raise ValueError(f"tasks[{index}].after must be a list of names")
    name = str(item.get("name") or f"part{index + 1}")
    task_id = derived_id("task", task.id, task.step, index)
    return Subtask(name=name, task_id=task_id, instruction=item["instruction"], after=tuple(after))


def _check(task: Task, parts: tuple[Subtask, ...]) -> None:
    names = [part.name for part in parts]
    if len(set(names)) < len(names):
        raise ValueError("two parts have the same name")
    left = task.submit.limits.subtasks - task.delegated
    if len(parts) > left:
        raise ValueError(f"{len(parts)} sub-tasks asked for, {left} of {task.submit.limits.subtasks} are left")
    done: set[str] = set()
    for part in parts:
        _require_room(task, part)
        if unknown := set(part.after) - done:
            raise ValueError(f"{part.name!r} comes after {sorted(unknown)}, which no earlier part is named")
        done.add(part.name)


def _require_room(task: Task, part: Subtask) -> None:
    """
    Raises:
        ValueError: it would not fit into the message that starts it.
    """
    most = MOST_INSTRUCTION - NEEDS_ROOM
    if len(part.instruction) > most:
        raise ValueError(f"the instruction of {part.name!r} has more than {most} characters: put long text into a file")
    if size(_command(task, part)) > MOST_BYTES - NEEDS_ROOM:
        raise ValueError(f"{part.name!r} does not fit into a message with the task's inputs: put long text into a file")


def _command(task: Task, spec: Subtask) -> SubmitTask:
    """The sub-task's share of what is left, so that all together stay within the parent's budget; what earlier parts said goes
    along as far as a message holds it."""
    bare = _bare(task, spec)
    told = "".join(f"\n{p.spec.name}: {p.ended.answer}" for p in task.subtasks if p.ended and p.spec.name in spec.after)
    if not told:
        return bare
    room = min(MOST_INSTRUCTION - len(spec.instruction), MOST_BYTES - size(bare)) - len(KNOWN)
    return bare.model_copy(update={"instruction": spec.instruction.strip() + KNOWN + fitting(told, room)})


def _bare(task: Task, spec: Subtask) -> SubmitTask:
    open_parts = sum(not p.ended for p in task.subtasks) or 1
    limits = task.submit.limits
    share = limits.model_copy(
        update={
            "steps": max(1, (limits.steps - task.step) // open_parts),
            "tokens": max(1, (limits.tokens - task.spent.tokens) // open_parts),
            "cost_usd": limits.cost_usd and max(1e-9, (limits.cost_usd - task.spent.cost_usd) / open_parts),
            "subtasks": (limits.subtasks - task.delegated) // open_parts,
            **parted(limits, task.tools_spent, open_parts),
        }
    )
    shared = ("sandbox", "isolation", "environment", "egress", "track", "policy", "sampling", "tools")
    same = (*shared, "agent", "secrets", "approvals", "priority")
    part = SubmitTask(
        instruction=spec.instruction,
        limits=share,
        parent_task_id=task.id,
        workspace=task.workspace,
        inputs=() if task.workspace else task.submit.inputs,
        **{name: getattr(task.submit, name) for name in same},
    )
    return clipped(part)  # a task that an earlier build took may have more than a new one may


def release_ready(decision: Decision) -> None:
    """Start the parts whose needs are met, and give up those whose needs will never be.

    A part only comes after earlier ones, so one pass in order sees every consequence.
    """
    for spec in [part.spec for part in decision.task.subtasks if not part.started and not part.ended]:
        ends = {p.spec.name: p.ended for p in decision.task.subtasks}
        needs = [ends[name] for name in spec.after]
        if any(end and end.outcome != "succeeded" for end in needs):
            decision.record(
                SubtaskEnded(at=decision.now, task_id=spec.task_id, outcome="cancelled", reason="parent_ended")
            )
        elif all(needs):
            decision.record(SubtaskStarted(at=decision.now, task_id=spec.task_id))
            decision.effect(Send(_command(decision.task, spec), spec.task_id))


def report(task: Task) -> Observation:
    """What the agent reads when all parts have ended."""
    lines = [
        f"{p.spec.name}: {p.ended.answer if p.ended.outcome == 'succeeded' else f'{p.ended.outcome} ({p.ended.reason})'}"
        for p in task.subtasks
        if p.ended
    ]
    good = all(p.ended and p.ended.outcome == "succeeded" for p in task.subtasks)
    return Observation(status="ok" if good else "failed", text="\n".join(lines)[:8192])


def stop_subtasks(decision: Decision) -> None:
    """Cancel the parts that still run: their parent ends."""
    for part in decision.task.subtasks:
        if part.started and not part.ended:
            parent = decision.task.id
            decision.effect(Send(CancelTask(reason="its parent ended", by=parent), part.spec.task_id))
