"""Publishing through PostgreSQL: the outbox's relay sends the message, and the task's own rows are its answer.

The twin of ``AmqpClient`` for an embedded stack, whose broker lives inside another process.
"""

import time
from collections.abc import Callable
from datetime import datetime

from longstride.agent.transitions import task_ended
from longstride.client.errors import NoAnswer, TaskRefused
from longstride.client.person import signed
from longstride.client.port import DEFAULT_TENANT
from longstride.client.reader import FIRST_POLL_S, LONGEST_POLL_S, Reader
from longstride.client.soundness import require_sound, sealed
from longstride.contracts.envelope import Envelope
from longstride.contracts.ids import new_id
from longstride.contracts.model import Contract
from longstride.contracts.v1.commands import SubmitTask
from longstride.contracts.v1.events import TaskAccepted, TaskEnded
from longstride.messaging.outbox import Outbox
from longstride.storage.tasks import TaskHead


class OutboxClient:
    """A client of a stack whose database can be reached. For one thread."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._outbox = Outbox()

    def submit(
        self, task: SubmitTask, *, tenant: str = DEFAULT_TENANT, session_id: str | None = None
    ) -> "OutboxHandle":
        """Publish a task. Returns when it cannot be lost any more.

        Raises:
            UsageProblem: it cannot be carried out, e.g. names a tool that does not exist.
            MessageError: the task is larger than a message may be.
            Unreachable: the database does not answer.
        """
        require_sound(task)
        envelope = sealed(task, task_id=new_id("task"), session_id=session_id or new_id("session"), tenant=tenant)
        self._publish(envelope)
        return OutboxHandle(self.reader, envelope, task.idempotency_key)

    def send(self, command: Contract, task_id: str, *, tenant: str = DEFAULT_TENANT) -> str:
        """Publish a command about a task; returns the message's id. Under another tenant's name than the task's it becomes a dead letter."""
        envelope = sealed(signed(command), task_id=task_id, tenant=tenant)
        self._publish(envelope)
        return envelope.message_id

    def _publish(self, envelope: Envelope) -> None:
        with self.reader.transaction() as uow:
            self._outbox.post(uow, envelope)

    def close(self) -> None:
        """Nothing of its own is held."""


class OutboxHandle:
    """A published task."""

    def __init__(self, reader: Reader, request: Envelope, idempotency_key: str | None) -> None:
        assert request.task_id is not None
        assert request.session_id is not None
        self._reader, self._request, self._key = reader, request, idempotency_key
        self.task_id = request.task_id
        self.session_id = request.session_id
        self._since = request.occurred_at

    def accepted(self, timeout_s: float = 30.0) -> TaskAccepted:
        """Wait until the task is there.

        Raises:
            TaskRefused: it was not a task.
            NoAnswer: no planner took it in time; it waits in the outbox.
        """
        head = self._wait(self._look, timeout_s)
        if head is None:
            raise NoAnswer(
                f"no planner has answered within {timeout_s:g} s (`longstride doctor` looks for why); {self.task_id} waits in the outbox"
            )
        duplicate = head.id != self._request.task_id
        self.task_id, self.session_id = head.id, head.session_id
        return TaskAccepted(duplicate=duplicate)

    def outcome(self, timeout_s: float | None = None) -> TaskEnded:
        """Wait until the task has ended.

        Raises:
            TaskRefused: it was not a task.
            NoAnswer: it has not ended in time; it goes on, and ``outcome`` may be called again.
        """
        head = self._wait(self._look_for_end, timeout_s)
        if head is None:
            raise NoAnswer(f"{self.task_id} has not ended within {timeout_s:g} s; it goes on")
        return outcome_of(self._reader, head)

    def _wait(self, look: Callable[[], TaskHead | None], timeout_s: float | None) -> TaskHead | None:
        deadline = time.monotonic() + timeout_s if timeout_s is not None else float("inf")
        pause = FIRST_POLL_S
        while (found := look()) is None and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(pause * 1.5, LONGEST_POLL_S)
        return found

    def _look(self) -> TaskHead | None:
        with self._reader.transaction() as uow:
            head = uow.tasks.head(self.task_id, lock=False)
            if head is None and self._key is not None:
                head = uow.tasks.by_idempotency_key(self._request.tenant, self._key)
            letters = uow.dead_letters.list(limit=20) if head is None else []
        refused = next((letter for letter in letters if letter.message_id == self._request.message_id), None)
        if refused:
            raise TaskRefused(f"the task was refused: {refused.reason}")
        return head

    def _look_for_end(self) -> TaskHead | None:
        head = self._look()
        return head if head and isinstance(head.ended_at, datetime) else None


def outcome_of(reader: Reader, head: TaskHead) -> TaskEnded:
    """What ``task_ended`` said of a task that has ended."""
    ended = task_ended(reader.state(head))
    return ended.model_copy(update={"trace_id": trace_id(head)})


def trace_id(head: TaskHead) -> str | None:
    """The trace of a task, 32 hex digits."""
    return head.traceparent.split("-")[1] if head.traceparent else None
