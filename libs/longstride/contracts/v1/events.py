"""Events: past tense, for whoever cares."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from longstride.contracts.artifact import ArtifactRef, NamedArtifact
from longstride.contracts.model import Contract, Text
from longstride.contracts.v1.action import Action, CheckResult, Observation, Usage
from longstride.contracts.v1.egress import Traffic

Outcome = Literal["succeeded", "failed", "cancelled"]

EndReason = Literal[
    "checks_passed",
    "submitted",
    "steps_exhausted",
    "tokens_exhausted",
    "cost_exhausted",
    "wall_clock_exhausted",
    "format_errors_exhausted",
    "submissions_exhausted",
    "cpu_exhausted",
    "tool_time_exhausted",
    "output_exhausted",
    "network_exhausted",
    "stuck",
    "check_cannot_run",
    "input_unusable",
    "policy_unavailable",
    "infrastructure",
    "cancelled",
    "parent_ended",
]
"""``submitted``: done, with no checks to pass. The last of the failures that the agent did not cause
(``check_cannot_run``, ``input_unusable``, ``policy_unavailable``, ``infrastructure``) carry no reward."""

UNREWARDED: frozenset[EndReason] = frozenset(
    {"check_cannot_run", "input_unusable", "policy_unavailable", "infrastructure", "cancelled", "parent_ended"}
)

Detail = Annotated[Text, StringConstraints(max_length=8192)]


class TaskAccepted(Contract):
    """The task is in PostgreSQL and will end. Sent to the reply queue."""

    duplicate: bool = False
    """The idempotency key was seen before: this is the first task."""


class TaskRejected(Contract):
    """The message was not a task. Sent to the reply queue; the body lies in the dead letters."""

    reason: Detail


class Generated(Contract):
    """The policy's answer to ``generate``."""

    step: Annotated[int, Field(ge=1)]
    text: Annotated[Text, StringConstraints(max_length=16_384)]
    """What the policy wrote; an answer of more than 16 KiB of UTF-8 is a format error, and its start is kept."""
    action: Action | None = None
    """``text`` as an action, when it is one."""
    format_error: Detail | None = None
    """Why ``text`` is not one action; fed back to the policy."""
    error: Detail | None = None
    """The call failed for good (no answer, policy gone): not the agent's doing."""
    tokens: ArtifactRef | None = None
    """The ``TokenRecord``, when the policy can give one."""
    usage: Usage = Usage()
    policy: str
    policy_version: int | None = None
    context_window: int | None = None
    """Tokens the policy can read and write in one call; the planner compacts the context before it is full."""
    finish_reason: str = "stop"
    """``stop``, ``length``, ``tool_calls`` or ``content_filter``."""


class ActionExecuted(Contract):
    """The result of one action; its workspace is the next step's start."""

    step: Annotated[int, Field(ge=1)]
    observation: Observation | None = None
    workspace: ArtifactRef | None = None
    """The workspace after the action."""
    checks: tuple[CheckResult, ...] = ()
    artifacts: tuple[NamedArtifact, ...] = ()
    """Files handed in with ``submit``."""
    usage: Usage = Usage()
    traffic: Traffic | None = None
    """What it asked of the network, where the task may reach something."""
    error: Detail | None = None
    """The action's outcome is unknown and no attempt is left: not the agent's doing."""
    input_error: Detail | None = None
    """An input could not be laid into the workspace."""
    needs_review: bool = False
    """A person decides: the task's approval rule covers this tool, or an ``unsafe`` tool was interrupted and its effect is unknown."""
    review: Detail | None = None
    """What the person is asked."""


class TaskEnded(Contract):
    """A task reached its one terminal state."""

    outcome: Outcome
    reason: EndReason
    detail: Detail = ""
    answer: Detail | None = None
    steps: Annotated[int, Field(ge=0)] = 0
    usage: Usage = Usage()
    tool_usage: Usage = Usage()
    """Of it, what tool calls took; a parent task's budgets for them count it."""
    checks: tuple[CheckResult, ...] = ()
    reward: float | None = None
    """Weighted mean of the check scores in [0, 1]; ``None`` without checks or when the failure was not the agent's."""
    artifacts: tuple[NamedArtifact, ...] = ()
    last_seq: Annotated[int, Field(ge=0)] = 0
    """The task's events 1…last_seq in PostgreSQL are its trajectory's source."""
    trace_id: str | None = None
    """W3C trace id, 32 hex digits."""


class PolicyPublished(Contract):
    """A new policy version may be served."""

    policy: str
    policy_version: Annotated[int, Field(ge=0)]
    parent_version: int | None = None
    manifest: ArtifactRef
    """JSON: the weight files with their hashes, the batch, the metrics."""
    batch_id: str | None = None
