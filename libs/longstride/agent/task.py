"""A task is a fold of its events: ``evolve`` is that fold, and the only place where state changes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from hashlib import sha256
from typing import Any, Literal

from longstride.agent import events as e
from longstride.agent.context import Context
from longstride.agent.tool_rules import ANYTHING
from longstride.contracts.artifact import ArtifactRef, NamedArtifact
from longstride.contracts.v1.action import Action, CheckResult, ObservationStatus, Usage
from longstride.contracts.v1.commands import SubmitTask
from longstride.contracts.v1.context import Message
from longstride.contracts.v1.events import EndReason, Outcome
from longstride.contracts.v1.tool_rules import ToolRules

Phase = Literal["queued", "thinking", "acting", "awaiting_approval", "awaiting_subtasks", "paused", "ready", "ended"]
"""``thinking``: a model call is out; ``acting``: a tool call is out; ``ready``: nothing is out and the next step may start."""

NOTHING, EMPTY = Usage(), Context()
MEMORY = 20
"""Turns that the stuck rules look at."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A step as the stuck rules and the summary see it."""

    step: int
    action: str
    """A hash of tool and arguments."""
    outcome: str
    """A hash of status and observation text."""
    status: ObservationStatus
    digest: str
    """One line for the summary of a compacted context."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Who asked for the action in hand, and where it is written."""

    event: int
    """Its seq."""
    policy: str
    policy_version: int | None


@dataclass(frozen=True, slots=True)
class SubtaskState:
    """A delegated part and how far it is."""

    spec: e.Subtask
    started: bool = False
    ended: e.SubtaskEnded | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """Everything the planner needs to know to decide. Its size does not grow with the number of steps."""

    id: str
    session_id: str
    tenant: str
    submit: SubmitTask
    seq: int = 0
    phase: Phase = "queued"
    step: int = 0
    spent: Usage = NOTHING
    """By model calls and tool calls, sub-tasks' included."""
    tools_spent: Usage = NOTHING
    """Of it, by tool calls."""
    clock_started: datetime | None = None
    """When the clock last began to run; ``None`` while it stands."""
    clock_s: float = 0.0
    """Seconds it ran before that."""
    context: Context = EMPTY
    plan: tuple[str, ...] = ()
    action: Action | None = None
    """Proposed and not yet observed."""
    proposal: Proposal | None = None
    """The last one."""
    approved: bool = False
    approver: str | None = None
    """Who approved the action in hand."""
    rules: ToolRules = ANYTHING
    rules_version: int | None = None
    """``None``: nobody had set any when it was accepted."""
    turns: tuple[Turn, ...] = ()
    call_tokens: tuple[int, ...] = ()
    """Output tokens of the last model calls."""
    format_errors: int = 0
    """In a row."""
    submissions: int = 0
    failed_step: int | None = None
    """The last step, when it failed: the next one corrects it."""
    workspace: ArtifactRef | None = None
    subtasks: tuple[SubtaskState, ...] = ()
    delegated: int = 0
    messages: tuple[tuple[datetime, str], ...] = ()
    """Received and not yet shown: when each was sent, and its text; in that order."""
    steered: datetime | None = None
    """When the last pause or resume that counted was sent: one that was sent before it comes too late."""
    pausing: bool = False
    nudges: tuple[str, ...] = ()
    """Rules that have nudged: a rule speaks once, then stops."""
    answer: str | None = None
    """Of the last submission that was carried out, whatever its checks said; not of one that a person denied."""
    checks: tuple[CheckResult, ...] = ()
    artifacts: tuple[NamedArtifact, ...] = ()
    outcome: Outcome | None = None
    reason: EndReason | None = None
    detail: str = ""
    reward: float | None = None

    @property
    def ended(self) -> bool:
        """In its one terminal state."""
        return self.phase == "ended"

    def running_s(self, now: datetime) -> float:
        """Seconds of the wall-clock budget used; parked time does not count."""
        return self.clock_s + ((now - self.clock_started).total_seconds() if self.clock_started else 0.0)


def fold(task: Task, happened: Iterable[e.TaskEvent]) -> Task:
    """The state after ``happened``."""
    return reduce(evolve, happened, task)


def evolve(task: Task, event: e.TaskEvent) -> Task:
    """The state after one event."""
    return replace(APPLY[type(event)](task, event), seq=task.seq + 1)


def _submitted(task: Task, event: e.Submitted) -> Task:
    task = replace(task, submit=event.submit, context=Context().add(*event.messages), workspace=event.submit.workspace)
    return replace(task, rules=event.rules.rules, rules_version=event.rules.version) if event.rules else task


def _forked(task: Task, event: e.Forked) -> Task:
    context = Context.resume(event.context_parent, event.tail, event.messages)
    return replace(
        task, context=replace(context, opening=task.context.opening), workspace=event.workspace, plan=event.plan
    )


def _started(task: Task, event: e.Started) -> Task:
    return replace(task, phase="ready", clock_started=event.at)


def _step_started(task: Task, event: e.StepStarted) -> Task:
    return replace(task, phase="thinking", step=event.step, action=None, approved=False, approver=None)


def _proposed(task: Task, event: e.ActionProposed) -> Task:
    said = Message(role="assistant", content=event.text, tokens=event.tokens, step=event.step)
    context = task.context.add(said).measured(event.usage.tokens, event.context_window)
    task = replace(
        task,
        phase="acting" if event.action else "ready",
        spent=task.spent + event.usage,
        context=context,
        action=event.action,
        proposal=Proposal(task.seq + 1, event.policy, event.policy_version),
        plan=task.plan if event.action is None or event.action.plan is None else event.action.plan,
        format_errors=task.format_errors + 1 if event.format_error else 0,
        call_tokens=(*task.call_tokens, event.usage.output_tokens)[-MEMORY:],
    )
    return _tell(task, event.format_error, event.step) if event.format_error else task


def _tell(task: Task, text: str, step: int | None, role: Literal["user", "tool"] = "tool") -> Task:
    return replace(task, context=task.context.add(Message(role=role, content=text, step=step)))


def _approval_requested(task: Task, event: e.ApprovalRequested) -> Task:
    return replace(_stop_clock(task, event.at), phase="awaiting_approval")


def _approval_decided(task: Task, event: e.ApprovalDecided) -> Task:
    return replace(task, phase="acting", clock_started=event.at, approved=event.approved, approver=event.by)


def _observed(task: Task, event: e.ActionObserved) -> Task:
    assert task.action is not None, "an observation follows an action"
    seen, failed = event.observation, event.observation.status != "ok"
    turn = turn_of(event.step, task.action, seen.status, seen.text)
    handed_in = task.action.tool == "submit" and not failed
    task = replace(
        task,
        phase="ready",
        action=None,
        spent=task.spent + event.usage,
        tools_spent=task.tools_spent + event.usage,
        workspace=event.workspace or task.workspace,
        turns=(*task.turns, turn)[-MEMORY:],
        failed_step=event.step if failed else None,
        submissions=task.submissions + (handed_in and bool(event.checks)),
        answer=str(task.action.arguments.get("answer", "")) if handed_in else task.answer,
        checks=event.checks or task.checks,
        artifacts=tuple({a.name: a for a in (*task.artifacts, *event.artifacts)}.values()),
        context=task.context.digested(turn.digest),
    )
    return _tell(task, observation_text(event), event.step)


def observation_text(event: e.ActionObserved) -> str:
    """The observation as the agent reads it."""
    return "\n".join(filter(None, (event.observation.text, event.reflection)))


def turn_of(step: int, action: Action, status: ObservationStatus, text: str) -> Turn:
    """A turn's comparable form: equal hashes mean the same call, and the same result."""
    arguments = action.model_dump_json(include={"tool", "arguments"})
    first_line = text.strip().splitlines()[-1][:120] if text.strip() else "(no output)"
    return Turn(
        step,
        _hash(arguments),
        _hash(status + text),
        status,
        f"step {step}: {_brief(action)} → {status}: {first_line}",
    )


def _brief(action: Action) -> str:
    said = ", ".join(f"{name}={str(value)[:80]!r}" for name, value in action.arguments.items())
    return f"{action.tool}({said[:160]})"


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def _delegated(task: Task, event: e.SubtasksDelegated) -> Task:
    parts = tuple(SubtaskState(spec) for spec in event.subtasks)
    return replace(task, phase="awaiting_subtasks", subtasks=parts, delegated=task.delegated + len(parts))


def _subtask_started(task: Task, event: e.SubtaskStarted) -> Task:
    return replace(task, subtasks=_with_part(task, event.task_id, started=True))


def _subtask_ended(task: Task, event: e.SubtaskEnded) -> Task:
    return replace(
        task,
        subtasks=_with_part(task, event.task_id, ended=event),
        spent=task.spent + event.usage,
        tools_spent=task.tools_spent + event.tool_usage,
    )


def _with_part(task: Task, task_id: str, **changes: Any) -> tuple[SubtaskState, ...]:
    return tuple(replace(part, **changes) if part.spec.task_id == task_id else part for part in task.subtasks)


def _nudged(task: Task, event: e.Nudged) -> Task:
    return _tell(replace(task, nudges=(*task.nudges, event.rule)), event.text, task.step, "user")


def _message_received(task: Task, event: e.MessageReceived) -> Task:
    return replace(task, messages=tuple(sorted((*task.messages, (event.sent, event.text)))))


def _messages_shown(task: Task, _: e.MessagesShown) -> Task:
    context = task.context.add(*(Message(role="user", content=text) for _, text in task.messages))
    return replace(task, context=context, messages=())


def _sealed(task: Task, event: e.ContextSealed) -> Task:
    return replace(task, context=task.context.sealed(event.ref))


def _compacted(task: Task, event: e.ContextCompacted) -> Task:
    return replace(task, context=task.context.compacted(event.messages))


def _pause_requested(task: Task, event: e.PauseRequested) -> Task:
    return replace(task, pausing=True, steered=event.sent)


def _parked(task: Task, event: e.Parked) -> Task:
    return replace(_stop_clock(task, event.at), phase="paused", pausing=False)


def _resumed(task: Task, event: e.Resumed) -> Task:
    if task.phase != "paused":
        return replace(task, pausing=False, steered=event.sent)
    phase: Phase = "acting" if task.action else "ready"
    return replace(task, phase=phase, clock_started=event.at, steered=event.sent)


def _stop_clock(task: Task, at: datetime) -> Task:
    return replace(task, clock_s=task.running_s(at), clock_started=None)


def _ended(task: Task, event: e.Ended) -> Task:
    task = _stop_clock(task, event.at)
    return replace(
        task, phase="ended", outcome=event.outcome, reason=event.reason, detail=event.detail, reward=event.reward
    )


APPLY: Mapping[type, Callable[[Task, Any], Task]] = {
    e.Submitted: _submitted,
    e.Forked: _forked,
    e.Started: _started,
    e.StepStarted: _step_started,
    e.ActionProposed: _proposed,
    e.ApprovalRequested: _approval_requested,
    e.ApprovalDecided: _approval_decided,
    e.ActionObserved: _observed,
    e.SubtasksDelegated: _delegated,
    e.SubtaskStarted: _subtask_started,
    e.SubtaskEnded: _subtask_ended,
    e.Nudged: _nudged,
    e.MessageReceived: _message_received,
    e.MessagesShown: _messages_shown,
    e.ContextSealed: _sealed,
    e.ContextCompacted: _compacted,
    e.PauseRequested: _pause_requested,
    e.Parked: _parked,
    e.Resumed: _resumed,
    e.Ended: _ended,
}
