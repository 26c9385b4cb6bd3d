"""What the audit tells of a task: one entry a decision that somebody may have to answer for. The row adds the tenant and the time."""

from typing import Literal

from pydantic import Field

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.model import Contract
from longstride.contracts.v1.action import ObservationStatus
from longstride.contracts.v1.egress import Traffic
from longstride.contracts.v1.events import EndReason, Outcome
from longstride.contracts.v1.limits import Allowance, Isolation, SandboxLimits


class TaskAcceptedEntry(Contract):
    """Somebody gave a task, and it will be worked on."""

    kind: Literal["task_accepted"] = "task_accepted"
    task_id: str
    session_id: str
    agent: str
    rules_version: int | None
    """Of the rules on tools that hold for it to its end; ``None``: there were none."""
    instruction_sha256: str
    submission_event: int
    """The seq of the task's event that holds the submission."""
    policy: str | None
    tools: tuple[str, ...] | None
    """``None``: all."""
    approvals: str
    isolation: Isolation
    parent_task_id: str | None
    """The task that delegated this one."""
    fork_of: tuple[str, int] | None


class ActionResult(Contract):
    """What came of an action."""

    status: ObservationStatus | Literal["no_result", "not_run"]
    """``no_result``: the task ended before one was recorded; the action may have run. ``not_run``: it was never sent out."""
    exit_code: int | None = None
    limit: str | None = None
    """Which limit was hit."""
    output_sha256: str | None = None
    """Of all of the output, as far as it was kept."""
    output: ArtifactRef | None = None
    """All of it, when the event holds only a part."""
    event: int | None = None
    """The seq of the task's event that holds the observation."""


class ActionEntry(Contract):
    """A step's action: who asked for what, within which bounds, and what came of it."""

    kind: Literal["action"] = "action"
    task_id: str
    session_id: str
    step: int
    attempt: int | None
    """``None``: the planner answered it, or it was not carried out."""
    agent: str
    rules_version: int | None
    policy: str | None
    policy_version: int | None
    approver: str | None
    """Who approved this very action; ``None``: nobody was asked."""
    tool: str
    arguments_sha256: str
    """Of the arguments as JSON with sorted keys, without spaces, in ASCII."""
    arguments_event: int = Field(ge=0)
    """The seq of the task's event that holds them."""
    limits: SandboxLimits
    allowance: Allowance | None = None
    """What was left of the task's budgets for tool calls; ``None``: it has none."""
    isolation: Isolation
    egress: tuple[str, ...] | None = None
    """The hosts and ports it could reach, e.g. ``*.example.com:80,443``; ``None``: the task had no network."""
    traffic: Traffic | None = None
    """Every connection that it asked for, by its record or the record's object; ``None``: none could be made, or the
    action has no result."""
    result: ActionResult


class ApprovalAskedEntry(Contract):
    """An action waits for a person."""

    kind: Literal["approval_asked"] = "approval_asked"
    task_id: str
    step: int
    tool: str | None
    arguments_sha256: str | None
    question: str


class ApprovalDecidedEntry(Contract):
    """A person decided."""

    kind: Literal["approval_decided"] = "approval_decided"
    task_id: str
    step: int
    tool: str | None
    approved: bool
    by: str
    reason: str


class TaskSteeredEntry(Contract):
    """A person paused or resumed a running task, or told it something."""

    kind: Literal["task_steered"] = "task_steered"
    task_id: str
    step: int
    """The one it was at."""
    what: Literal["pause", "resume", "message"]
    by: str
    text_sha256: str | None = None
    """Of the message."""
    event: int
    """The seq of the task's event that holds it."""


class TaskEndedEntry(Contract):
    """A task reached its one terminal state."""

    kind: Literal["task_ended"] = "task_ended"
    task_id: str
    outcome: Outcome
    reason: EndReason
    detail: str
    by: str | None = None
    """Who cancelled it; ``None``: nobody did."""
    steps: int
    reward: float | None
    last_event: int
    """The seq of its last event: events 1 to here are its history."""


class RulesSetEntry(Contract):
    """The rules on tools of a tenant's agent definition were set."""

    kind: Literal["rules_set"] = "rules_set"
    agent: str
    version: int
    rules_sha256: str
    by: str


AuditEntry = (
    TaskAcceptedEntry
    | ActionEntry
    | ApprovalAskedEntry
    | ApprovalDecidedEntry
    | TaskSteeredEntry
    | TaskEndedEntry
    | RulesSetEntry
)
