"""The audit entries of a transition: written with its events, in their transaction."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

from longstride.agent import events as e
from longstride.agent.allowance import allowance
from longstride.agent.decision import Decision
from longstride.agent.task import Task, evolve
from longstride.agent.transitions import call_limits
from longstride.contracts.envelope import Envelope
from longstride.contracts.v1.action import Action, Observation
from longstride.contracts.v1.audit_entry import (
    ActionEntry,
    ActionResult,
    ApprovalAskedEntry,
    ApprovalDecidedEntry,
    AuditEntry,
    TaskAcceptedEntry,
    TaskEndedEntry,
    TaskSteeredEntry,
)
from longstride.contracts.v1.commands import SubmitTask
from longstride.contracts.v1.egress import Traffic


@dataclass(frozen=True, slots=True)
class Moment:
    """What an entry is made of: the task as it was right before an event, what it was before the transition, its cause."""

    task: Task
    before: Task
    cause: Envelope

    @property
    def seq(self) -> int:
        """Of the event."""
        return self.task.seq + 1


def entries(decision: Decision, cause: Envelope) -> Iterator[AuditEntry]:
    """What the audit keeps of a decision, in the order of its events."""
    task = decision.before
    for event in decision.events:
        if (tell := ENTRIES.get(type(event))) is not None:
            yield from tell(Moment(task, decision.before, cause), event)
        task = evolve(task, event)


def _submitted(moment: Moment, event: e.Submitted) -> Iterator[AuditEntry]:
    submit: SubmitTask = event.submit
    yield TaskAcceptedEntry(
        task_id=moment.task.id,
        session_id=moment.task.session_id,
        rules_version=event.rules.version if event.rules else None,
        instruction_sha256=_digest(submit.instruction),
        submission_event=moment.seq,
        **{name: getattr(submit, name) for name in _SUBMITTED},
    )


def _observed(moment: Moment, event: e.ActionObserved) -> Iterator[AuditEntry]:
    answered = moment.cause.type == "action_executed"
    attempt = moment.cause.attempt if answered else None
    yield _action(moment, _result(event.observation, moment.seq), attempt, event.traffic)


def _ended(moment: Moment, event: e.Ended) -> Iterator[AuditEntry]:
    """The end, and before it the action that it overtook."""
    if moment.task.action is not None:
        result = ActionResult(status="not_run" if moment.before.action is None else "no_result")
        yield _action(moment, result, None)
    yield TaskEndedEntry(
        task_id=moment.task.id,
        outcome=event.outcome,
        reason=event.reason,
        detail=event.detail[:1024],
        by=event.by,
        steps=moment.task.step,
        reward=event.reward,
        last_event=moment.seq,
    )


def _paused(moment: Moment, event: e.PauseRequested) -> Iterator[AuditEntry]:
    yield _steered(moment, "pause", event.by)


def _resumed(moment: Moment, event: e.Resumed) -> Iterator[AuditEntry]:
    yield _steered(moment, "resume", event.by)


def _told(moment: Moment, event: e.MessageReceived) -> Iterator[AuditEntry]:
    yield _steered(moment, "message", event.by, _digest(event.text))


def _steered(
    moment: Moment, what: Literal["pause", "resume", "message"], by: str, text_sha256: str | None = None
) -> TaskSteeredEntry:
    task = moment.task
    return TaskSteeredEntry(
        task_id=task.id, step=task.step, what=what, by=by, text_sha256=text_sha256, event=moment.seq
    )


def _asked(moment: Moment, event: e.ApprovalRequested) -> Iterator[AuditEntry]:
    action = moment.task.action
    yield ApprovalAskedEntry(
        task_id=moment.task.id,
        step=event.step,
        tool=action.tool if action else None,
        arguments_sha256=arguments_hash(action) if action else None,
        question=event.why,
    )


def _decided(moment: Moment, event: e.ApprovalDecided) -> Iterator[AuditEntry]:
    action = moment.task.action
    yield ApprovalDecidedEntry(
        task_id=moment.task.id,
        step=event.step,
        tool=action.tool if action else None,
        approved=event.approved,
        by=event.by,
        reason=event.reason,
    )


def _action(moment: Moment, result: ActionResult, attempt: int | None, traffic: Traffic | None = None) -> ActionEntry:
    egress = moment.task.submit.egress
    task, action, proposal = moment.task, moment.task.action, moment.task.proposal
    assert action is not None, "the entry is about an action"
    assert proposal is not None, "an action was proposed"
    return ActionEntry(
        task_id=task.id,
        session_id=task.session_id,
        step=task.step,
        attempt=attempt,
        agent=task.submit.agent,
        rules_version=task.rules_version,
        policy=proposal.policy,
        policy_version=proposal.policy_version,
        approver=task.approver if task.approved else None,
        tool=action.tool,
        arguments_sha256=arguments_hash(action),
        arguments_event=proposal.event,
        limits=call_limits(task),
        allowance=allowance(task.submit.limits, task.tools_spent),
        isolation=task.submit.isolation,
        egress=tuple(map(str, egress.rules)) if egress else None,
        traffic=traffic,
        result=result,
    )


def _result(seen: Observation, seq: int) -> ActionResult:
    return ActionResult(
        status=seen.status,
        exit_code=seen.exit_code,
        limit=seen.limit,
        output_sha256=seen.full.sha256 if seen.full else _digest(seen.text),
        output=seen.full,
        event=seq,
    )


def arguments_hash(action: Action) -> str:
    """SHA-256 of an action's arguments as canonical JSON."""
    return _digest(json.dumps(action.arguments, sort_keys=True, separators=(",", ":")))


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


_SUBMITTED = ("agent", "policy", "tools", "approvals", "isolation", "parent_task_id", "fork_of")

ENTRIES: Mapping[type, Callable[[Moment, Any], Iterator[AuditEntry]]] = {
    e.Submitted: _submitted,
    e.ApprovalRequested: _asked,
    e.ApprovalDecided: _decided,
    e.ActionObserved: _observed,
    e.PauseRequested: _paused,
    e.Resumed: _resumed,
    e.MessageReceived: _told,
    e.Ended: _ended,
}
"""Events that leave an entry."""
