"""What a transition decided: events to append and effects to carry out in the same transaction."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from longstride.agent.events import TaskEvent
from longstride.agent.task import Task, evolve
from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.model import Contract
from longstride.contracts.v1.commands import ExecuteAction, Generate

StepPhase = Literal["generate", "execute"]


@dataclass(frozen=True, slots=True)
class Store:
    """Write an object, before the transaction commits."""

    ref: ArtifactRef
    data: bytes


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Send a command that will be answered, under a fresh attempt."""

    phase: StepPhase
    command: Generate | ExecuteAction


@dataclass(frozen=True, slots=True)
class Settle:
    """The answer of a phase has been used; its attempts are done with."""

    phase: StepPhase
    step: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """Whatever is in flight for the task loses its lease, and its worker stops."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message about this or another task."""

    message: Contract
    task_id: str


@dataclass(frozen=True, slots=True)
class CountCall:
    """A tool with a rate limit is called."""

    tool: str


@dataclass(frozen=True, slots=True)
class Reply:
    """Tell the client that submitted the task."""

    message: Contract


@dataclass(frozen=True, slots=True)
class SetDeadline:
    """Send ``expire_task`` after so many seconds; ``None`` takes the timer back."""

    seconds: float | None


Effect = Store | Dispatch | Settle | Abandon | Send | CountCall | Reply | SetDeadline


@dataclass(slots=True)
class Decision:
    """A transition in the making. ``record`` is the only way to change the task."""

    task: Task
    now: datetime
    sent: datetime | None = None
    """When the message in hand was sent, by its sender's clock, and not after ``now``: one from the future would be the last word
    for ever."""
    history: Callable[[int], str | None] = lambda step: None
    """Reads the observation of an earlier step."""
    recent_calls: Callable[[str], int] = lambda tool: 0
    """Counts the calls of a tool by the tenant's tasks in the last minute."""
    events: list[TaskEvent] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    before: Task = field(init=False)
    """The task as it was found."""

    def __post_init__(self) -> None:
        self.before = self.task

    def record(self, event: TaskEvent) -> None:
        """Append an event; the task is its fold."""
        self.task = evolve(self.task, event)
        self.events.append(event)

    def effect(self, *effects: Effect) -> None:
        """Ask for effects, in order."""
        self.effects.extend(effects)
