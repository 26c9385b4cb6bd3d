"""What happened to a task: the events whose fold is its state. Each is stored as (type, payload) and never changed."""

from datetime import datetime

from longstride.contracts.artifact import ArtifactRef, NamedArtifact
from longstride.contracts.model import Contract
from longstride.contracts.v1.action import Action, CheckResult, Observation, Usage
from longstride.contracts.v1.commands import UNKNOWN, SubmitTask
from longstride.contracts.v1.context import Message
from longstride.contracts.v1.egress import Traffic
from longstride.contracts.v1.events import EndReason, Outcome
from longstride.contracts.v1.tool_rules import RulesInForce


class Submitted(Contract):
    """The task exists. Large inline inputs have become references."""

    at: datetime
    submit: SubmitTask
    messages: tuple[Message, ...]
    """The opening context: system prompt and instruction. Stored, so that a new release does not change a running task."""
    rules: RulesInForce | None = None
    """On tools. Stored, so that new rules do not change a running task."""


class Forked(Contract):
    """The task starts from another task's state after one of its steps."""

    source: str
    step: int
    context_parent: ArtifactRef | None = None
    tail: tuple[Message, ...]
    messages: int
    workspace: ArtifactRef | None = None
    plan: tuple[str, ...]


class Started(Contract):
    """The task was admitted; its clock runs."""

    at: datetime


class StepStarted(Contract):
    """The policy was asked for the next action."""

    at: datetime
    step: int


class ActionProposed(Contract):
    """The policy answered."""

    at: datetime
    step: int
    text: str
    action: Action | None = None
    format_error: str | None = None
    tokens: ArtifactRef | None = None
    usage: Usage = Usage()
    policy: str
    policy_version: int | None = None
    context_window: int | None = None


class ApprovalRequested(Contract):
    """The action waits for a person; the task is parked."""

    at: datetime
    step: int
    why: str


class ApprovalDecided(Contract):
    """A person decided; the task goes on."""

    at: datetime
    step: int
    approved: bool
    reason: str
    by: str


class ActionObserved(Contract):
    """The action was carried out, refused or found invalid, and the agent is told so."""

    at: datetime
    step: int
    observation: Observation
    reflection: str | None = None
    """What the planner read in the error; shown to the agent with the observation."""
    workspace: ArtifactRef | None = None
    checks: tuple[CheckResult, ...] = ()
    artifacts: tuple[NamedArtifact, ...] = ()
    usage: Usage = Usage()
    traffic: Traffic | None = None
    """What the action asked of the network, where the task may reach something."""


class Subtask(Contract):
    """A part of a task that another agent works on."""

    name: str
    task_id: str
    instruction: str
    after: tuple[str, ...] = ()
    """Names of the sub-tasks whose answers it needs."""


class SubtasksDelegated(Contract):
    """The action was ``delegate``; the task waits for its parts."""

    at: datetime
    step: int
    subtasks: tuple[Subtask, ...]


class SubtaskStarted(Contract):
    """A part's needs are met; it was submitted."""

    at: datetime
    task_id: str


class SubtaskEnded(Contract):
    """A part ended, or will never start because one it needs did not succeed."""

    at: datetime
    task_id: str
    outcome: Outcome
    reason: EndReason
    answer: str | None = None
    usage: Usage = Usage()
    tool_usage: Usage = Usage()
    """Of it, what tool calls took."""


class Nudged(Contract):
    """The agent goes in circles and was told so."""

    at: datetime
    rule: str
    text: str


class MessageReceived(Contract):
    """Somebody told the task something; shown before the next model call."""

    at: datetime
    text: str
    sent: datetime
    """By the sender's clock: what decides the order when several wait."""
    by: str = UNKNOWN


class MessagesShown(Contract):
    """Received messages entered the context."""

    at: datetime


class ContextSealed(Contract):
    """The tail became an object; it starts empty again."""

    ref: ArtifactRef


class ContextCompacted(Contract):
    """The context was replaced by a shorter one; what it held stays readable at ``archived``."""

    at: datetime
    messages: tuple[Message, ...]
    archived: ArtifactRef
    hard: bool = False
    """Everything but instruction, summary and the last observation was dropped."""


class PauseRequested(Contract):
    """The task will park after the call in flight."""

    at: datetime
    sent: datetime
    by: str = UNKNOWN


class Parked(Contract):
    """Nothing is held and the clock stands still."""

    at: datetime


class Resumed(Contract):
    """The clock runs again."""

    at: datetime
    sent: datetime
    by: str = UNKNOWN


class Ended(Contract):
    """The one terminal event."""

    at: datetime
    outcome: Outcome
    reason: EndReason
    detail: str = ""
    reward: float | None = None
    by: str | None = None
    """Who cancelled it; ``None``: nobody did."""


TaskEvent = (
    Submitted
    | Forked
    | Started
    | StepStarted
    | ActionProposed
    | ApprovalRequested
    | ApprovalDecided
    | ActionObserved
    | SubtasksDelegated
    | SubtaskStarted
    | SubtaskEnded
    | Nudged
    | MessageReceived
    | MessagesShown
    | ContextSealed
    | ContextCompacted
    | PauseRequested
    | Parked
    | Resumed
    | Ended
)

EVENTS: dict[str, type[Contract]] = {
    "submitted": Submitted,
    "forked": Forked,
    "started": Started,
    "step_started": StepStarted,
    "action_proposed": ActionProposed,
    "approval_requested": ApprovalRequested,
    "approval_decided": ApprovalDecided,
    "action_observed": ActionObserved,
    "subtasks_delegated": SubtasksDelegated,
    "subtask_started": SubtaskStarted,
    "subtask_ended": SubtaskEnded,
    "nudged": Nudged,
    "message_received": MessageReceived,
    "messages_shown": MessagesShown,
    "context_sealed": ContextSealed,
    "context_compacted": ContextCompacted,
    "pause_requested": PauseRequested,
    "parked": Parked,
    "resumed": Resumed,
    "ended": Ended,
}
TYPES = {model: name for name, model in EVENTS.items()}


def store(event: TaskEvent) -> tuple[str, dict[str, object]]:
    """An event as its row: (type, payload)."""
    return TYPES[type(event)], event.model_dump(mode="json", exclude_none=True)


def load(type_: str, payload: dict[str, object]) -> TaskEvent:
    """A row as its event.

    Raises:
        ValueError: the type is unknown or the payload does not fit: the row was written by a newer release.
    """
    if type_ not in EVENTS:
        raise ValueError(f"unknown task event {type_!r}: was it written by a newer release?")
    return EVENTS[type_].model_validate(payload)  # type: ignore[return-value]
