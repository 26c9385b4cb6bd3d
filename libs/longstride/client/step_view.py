"""A task's steps as a person reads them: a fold of its events."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from longstride.agent import events as e
from longstride.contracts.artifact import NamedArtifact
from longstride.contracts.v1.action import Action, CheckResult, Observation, Usage
from longstride.contracts.v1.egress import Traffic

NOTHING = Usage()


@dataclass(frozen=True, slots=True)
class StepView:
    """One step: what was thought, done and seen, and what it took."""

    number: int
    started_at: datetime
    status: str = "thinking"
    """thinking, acting, waiting, the observation's status, or format_error; as in the table ``steps``."""
    corrects: int | None = None
    """The failed step before this one."""
    text: str = ""
    """What the policy wrote."""
    action: Action | None = None
    new_plan: tuple[str, ...] | None = None
    """The plan, where this step changed it."""
    format_error: str | None = None
    policy: str | None = None
    policy_version: int | None = None
    model_usage: Usage = NOTHING
    proposed_at: datetime | None = None
    question: str | None = None
    """What a person is, or was, asked."""
    decision: str | None = None
    """What the person said."""
    subtasks: tuple[e.Subtask, ...] = ()
    observation: Observation | None = None
    reflection: str | None = None
    checks: tuple[CheckResult, ...] = ()
    artifacts: tuple[NamedArtifact, ...] = ()
    tool_usage: Usage = NOTHING
    traffic: Traffic | None = None
    """What the action asked of the network, where the task may reach something."""
    acting_since: datetime | None = None
    """When the tool call could begin: after the answer, or after the approval."""
    ended_at: datetime | None = None
    nudge: str | None = None
    """What the planner told an agent that goes in circles."""

    @property
    def model_s(self) -> float | None:
        """Seconds from the question to the policy's answer, queueing included."""
        return _between(self.started_at, self.proposed_at)

    @property
    def tool_s(self) -> float | None:
        """Seconds from the answer to the observation, queueing included, waiting for a person not."""
        return _between(self.acting_since, self.ended_at) if self.observation else None

    @property
    def failed(self) -> bool:
        """The next step has something to correct."""
        return self.status not in ("thinking", "acting", "waiting", "ok") or any(not c.passed for c in self.checks)

    @property
    def answer(self) -> str | None:
        """What was handed in, where this step is a submission that was carried out."""
        if self.action is None or self.action.tool != "submit" or self.observation is None:
            return None
        return str(self.action.arguments.get("answer", "")) if self.observation.status == "ok" else None

    @property
    def usage(self) -> Usage:
        """Model and tool together."""
        return self.model_usage + self.tool_usage


@dataclass(slots=True)
class History:
    """Everything that happened to a task, by step. Grows by ``add``."""

    steps: dict[int, StepView] = field(default_factory=dict)
    plan: tuple[str, ...] = ()
    messages: list[str] = field(default_factory=list)
    """What people told the task."""
    ended: e.Ended | None = None

    @property
    def last(self) -> StepView | None:
        """The step that runs, or ran last."""
        return next(reversed(self.steps.values()), None)

    def add(self, event: e.TaskEvent) -> None:
        """One more event happened."""
        apply = APPLY.get(type(event))
        if apply:
            apply(self, event)

    def change(self, number: int, **changes: Any) -> None:
        """Set fields of a step."""
        self.steps[number] = replace(self.steps[number], **changes)


def history(happened: Iterable[e.TaskEvent]) -> History:
    """The history of a task's events, from the first."""
    result = History()
    for event in happened:
        result.add(event)
    return result


def _between(start: datetime | None, end: datetime | None) -> float | None:
    return (end - start).total_seconds() if start and end else None


def _started(past: History, event: e.StepStarted) -> None:
    before = past.last
    corrects = before.number if before and before.failed else None
    past.steps[event.step] = StepView(event.step, event.at, corrects=corrects)


def _proposed(past: History, event: e.ActionProposed) -> None:
    plan = event.action.plan if event.action else None
    past.change(
        event.step,
        status="acting" if event.action else "format_error",
        text=event.text,
        action=event.action,
        new_plan=plan if plan != past.plan else None,
        format_error=event.format_error,
        policy=event.policy,
        policy_version=event.policy_version,
        model_usage=event.usage,
        proposed_at=event.at,
        acting_since=event.at,
        ended_at=event.at if event.format_error else None,
    )
    past.plan = past.plan if plan is None else plan


def _asked(past: History, event: e.ApprovalRequested) -> None:
    past.change(event.step, status="waiting", question=event.why, decision=None)


def _decided(past: History, event: e.ApprovalDecided) -> None:
    said = f"{'approved' if event.approved else 'denied'} by {event.by}" + (f": {event.reason}" if event.reason else "")
    past.change(event.step, status="acting", decision=said, acting_since=event.at)


def _observed(past: History, event: e.ActionObserved) -> None:
    past.change(
        event.step,
        status=event.observation.status,
        observation=event.observation,
        reflection=event.reflection,
        checks=event.checks,
        artifacts=event.artifacts,
        tool_usage=event.usage,
        traffic=event.traffic,
        ended_at=event.at,
    )


def _delegated(past: History, event: e.SubtasksDelegated) -> None:
    past.change(event.step, subtasks=event.subtasks)


def _nudged(past: History, event: e.Nudged) -> None:
    if past.last:
        past.change(past.last.number, nudge=event.text)


def _told(past: History, event: e.MessageReceived) -> None:
    past.messages.append(event.text)


def _ended(past: History, event: e.Ended) -> None:
    past.ended = event


APPLY: Mapping[type, Callable[[History, Any], None]] = {
    e.StepStarted: _started,
    e.ActionProposed: _proposed,
    e.ApprovalRequested: _asked,
    e.ApprovalDecided: _decided,
    e.ActionObserved: _observed,
    e.SubtasksDelegated: _delegated,
    e.Nudged: _nudged,
    e.MessageReceived: _told,
    e.Ended: _ended,
}
"""Events that change what a person sees; the others do not."""
