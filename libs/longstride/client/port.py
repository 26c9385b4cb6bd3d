"""The port to a Longstride that runs somewhere: publish, steer, hear the outcome."""

from typing import Protocol

from longstride.contracts.model import Contract
from longstride.contracts.v1.commands import SubmitTask
from longstride.contracts.v1.events import TaskAccepted, TaskEnded

DEFAULT_TENANT = "default"


class TaskHandle(Protocol):
    """A published task."""

    @property
    def task_id(self) -> str:
        """Its id; for a repeated idempotency key that of the first task, once ``accepted`` has returned."""

    @property
    def session_id(self) -> str:
        """The session it was published in."""

    def accepted(self, timeout_s: float = 30.0) -> TaskAccepted:
        """Wait until the task is durable.

        Raises:
            TaskRefused: it was not a task.
            NoAnswer: nobody answered in time; the message is on its queue.
        """

    def outcome(self, timeout_s: float | None = None) -> TaskEnded:
        """Wait until the task has ended.

        Raises:
            TaskRefused: it was not a task.
            NoAnswer: it has not ended in time; it goes on.
        """


class TaskClient(Protocol):
    """``AmqpClient`` speaks to a broker, ``OutboxClient`` to an embedded stack."""

    def submit(self, task: SubmitTask, *, tenant: str = DEFAULT_TENANT, session_id: str | None = None) -> TaskHandle:
        """Publish a task. Returns when it cannot be lost any more."""

    def send(self, command: Contract, task_id: str, *, tenant: str = DEFAULT_TENANT) -> str:
        """Publish a command about a task, by whoever runs this program if it names nobody; returns the message's id."""

    def close(self) -> None:
        """Let go of the connection. Tasks go on."""
