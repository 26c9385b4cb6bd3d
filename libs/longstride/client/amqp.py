"""Publishing and following tasks with nothing but a broker: needs pika and the contracts."""

import time
from collections.abc import Callable
from types import TracebackType

from longstride.client.broker import Broker, ConnectionLost
from longstride.client.errors import NoAnswer, TaskRefused, Unreachable
from longstride.client.person import signed
from longstride.client.port import DEFAULT_TENANT
from longstride.client.soundness import require_sound, sealed
from longstride.contracts.envelope import Envelope, decode
from longstride.contracts.ids import new_id
from longstride.contracts.model import Contract
from longstride.contracts.v1.commands import SubmitTask
from longstride.contracts.v1.events import TaskAccepted, TaskEnded, TaskRejected

PATIENCE_S = 30.0
PUMP_S = 5.0


def _silent(_: str) -> None:
    """For callers that show nothing while they wait."""


class Client:
    """A client of a broker, for one thread.

    A lost connection is made again, and every task without an outcome is asked for again: a submission of a task that
    exists has no effect but to have its answers sent to the new reply queue, too.
    """

    def __init__(self, amqp_url: str, *, patience_s: float = PATIENCE_S, say: Callable[[str], None] = _silent) -> None:
        """Connects at once.

        Args:
            amqp_url: ``amqp://user:password@host:5672/%2F``.
            patience_s: seconds to keep trying when the broker does not answer, now and later.
            say: told, in a sentence, what is waited for.

        Raises:
            Unreachable: nobody answers there.
        """
        self._patience_s = patience_s
        self._handles: dict[str, Handle] = {}
        self._broker = Broker(amqp_url, self._reply, say)
        self._broker.connect(patience_s)

    def submit(self, task: SubmitTask, *, tenant: str = DEFAULT_TENANT, session_id: str | None = None) -> "Handle":
        """Publish a task. Returns when the broker has it on a durable queue; ``accepted`` says that the planner has it.

        Raises:
            UsageProblem: it cannot be carried out, e.g. names a tool that does not exist.
            MessageError: the task is larger than a message may be.
            Unroutable, BrokerRefused, Unreachable: it is on no queue.
        """
        require_sound(task)
        envelope = sealed(task, task_id=new_id("task"), session_id=session_id or new_id("session"), tenant=tenant)
        handle = Handle(self, envelope)
        self._handles[handle.correlation_id] = handle
        try:
            self._publish(envelope, handle.correlation_id)
        except BaseException:
            self.forget(handle)
            raise
        return handle

    def send(self, command: Contract, task_id: str, *, tenant: str = DEFAULT_TENANT) -> str:
        """Publish a command about a task; returns the message's id. Nothing answers it: look at the task.

        Args:
            command: what is to become of the task.
            task_id: whole.
            tenant: the task's. Under another's name the command becomes a dead letter, and the task hears nothing of it.

        Raises:
            UsageProblem: that cannot be a task's id or a tenant.
            Unroutable, BrokerRefused, Unreachable: it is on no queue.
        """
        envelope = sealed(signed(command), task_id=task_id, tenant=tenant)
        self._publish(envelope)
        return envelope.message_id

    def _publish(self, envelope: Envelope, correlation_id: str | None = None) -> None:
        """Until it is confirmed: the message id stays, so a message that arrives twice counts once."""
        for _ in range(3):
            try:
                return self._broker.publish(envelope, correlation_id)
            except ConnectionLost:
                self._reconnect()
        raise Unreachable(f"the connection broke three times while publishing {envelope.type}")

    def _reconnect(self) -> None:
        self._broker.connect(self._patience_s)
        for handle in tuple(self._handles.values()):
            handle.lost_sight = True

    def _ask_again(self) -> None:
        """Have the answers of open tasks sent to the new reply queue."""
        for handle in [h for h in self._handles.values() if h.lost_sight]:
            self._publish(handle.asked_again(), handle.correlation_id)
            handle.lost_sight = False

    def wait(self, done: Callable[[], bool], timeout_s: float | None) -> bool:
        """Handle replies until ``done`` or for ``timeout_s`` seconds; says whether it is done."""
        deadline = time.monotonic() + timeout_s if timeout_s is not None else float("inf")
        while not done():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            try:
                self._ask_again()
                self._broker.pump(min(PUMP_S, left))
            except ConnectionLost:
                self._reconnect()
        return True

    def _reply(self, correlation_id: str, body: bytes) -> None:
        handle = self._handles.get(correlation_id)
        if handle is not None:
            handle.take(decode(body))

    def forget(self, handle: "Handle") -> None:
        """Its outcome is known, or nobody wants it any more."""
        self._handles.pop(handle.correlation_id, None)

    def close(self) -> None:
        """Let go of the connection. Tasks go on."""
        self._broker.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()


class Handle:
    """A published task."""

    def __init__(self, client: Client, request: Envelope) -> None:
        assert request.task_id is not None
        assert request.session_id is not None
        self._client, self._request = client, request
        self.task_id = request.task_id
        """Its id; for a repeated idempotency key that of the first task, once ``accepted`` has returned."""
        self.session_id = request.session_id
        self.correlation_id = request.message_id
        self.lost_sight = False
        """The reply queue that the planner knows is gone."""
        self._accepted: TaskAccepted | None = None
        self._rejected: TaskRejected | None = None
        self._ended: TaskEnded | None = None

    def accepted(self, timeout_s: float = 30.0) -> TaskAccepted:
        """Wait until the task is in PostgreSQL.

        Raises:
            TaskRefused: it was not a task.
            NoAnswer: no planner answered in time; the message is on its queue.
        """
        if not self._client.wait(lambda: bool(self._accepted or self._rejected or self._ended), timeout_s):
            raise NoAnswer(
                f"no planner has answered within {timeout_s:g} s (`longstride doctor` looks for why); {self.task_id} is on its queue"
            )
        self._raise_if_rejected()
        return self._accepted or TaskAccepted()

    def outcome(self, timeout_s: float | None = None) -> TaskEnded:
        """Wait until the task has ended.

        Raises:
            TaskRefused: it was not a task.
            NoAnswer: it has not ended in time; it goes on, and ``outcome`` may be called again.
        """
        if not self._client.wait(lambda: bool(self._rejected or self._ended), timeout_s):
            raise NoAnswer(f"{self.task_id} has not ended within {timeout_s:g} s; it goes on")
        self._raise_if_rejected()
        assert self._ended is not None
        return self._ended

    def _raise_if_rejected(self) -> None:
        if self._rejected:
            raise TaskRefused(f"the task was refused: {self._rejected.reason}")

    def take(self, reply: Envelope) -> None:
        """An answer arrived."""
        message = reply.message()
        self.task_id = reply.task_id or self.task_id
        if isinstance(message, TaskAccepted):
            # A submission that was asked for again is answered as a duplicate of itself.
            known_already = message.duplicate and self.task_id != self._request.task_id
            self._accepted = self._accepted or TaskAccepted(duplicate=known_already)
        elif isinstance(message, TaskRejected):
            self._rejected = message
        elif isinstance(message, TaskEnded):
            self._ended = message
        if self._rejected or self._ended:
            self._client.forget(self)

    def asked_again(self) -> Envelope:
        """The same submission as a new message, so that it is answered although the first one was handled."""
        return self._request.model_copy(update={"message_id": new_id("msg")})
