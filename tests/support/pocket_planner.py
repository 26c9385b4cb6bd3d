"""The smallest planner: a task whose steps are counted, one event a transition, real rows and messages throughout."""

from datetime import UTC, datetime
from typing import Any

from longstride.contracts.envelope import Envelope, seal
from longstride.contracts.ids import new_id
from longstride.contracts.model import Contract
from longstride.contracts.v1.action import Action
from longstride.contracts.v1.commands import ExecuteAction, Generate, Sampling, SubmitTask
from longstride.contracts.v1.context import ContextHead
from longstride.contracts.v1.events import ActionExecuted, Generated
from longstride.contracts.v1.limits import SandboxLimits
from longstride.messaging.commands import Commands, QueuedCommands
from longstride.messaging.handling import DeliveryInfo, Handler
from longstride.messaging.lease import AttemptKey
from longstride.messaging.outbox import Outbox
from longstride.storage.database import Database
from longstride.storage.tasks import TaskHead
from longstride.storage.unit_of_work import UnitOfWork


class PocketPlanner:
    """Sends `steps` commands of one phase, each after the answer to the one before, and writes down every transition."""

    def __init__(
        self, outbox: Outbox, phase: str, steps: int, tool: str = "shell", commands: Commands | None = None
    ) -> None:
        self._commands = commands or QueuedCommands(outbox)
        self._phase = phase
        self._steps = steps
        self._tool = tool

    def handlers(self) -> dict[str, Handler]:
        return {"submit_task": self.submitted, "generated": self.answered, "action_executed": self.answered}

    def submitted(self, envelope: Envelope, message: SubmitTask, uow: UnitOfWork, delivery: DeliveryInfo) -> None:
        assert envelope.task_id is not None
        uow.tasks.insert(new_task(envelope.task_id))
        self._go_on(envelope, uow, 1, {"submitted": message.instruction})

    def answered(self, envelope: Envelope, message: Any, uow: UnitOfWork, delivery: DeliveryInfo) -> None:
        assert envelope.task_id is not None
        head = uow.tasks.head(envelope.task_id)
        assert head is not None
        if message.step != head.version:
            return  # an answer to a step that is over
        uow.attempts.settle(envelope.task_id, message.step, self._phase)  # type: ignore[arg-type]
        self._go_on(envelope, uow, message.step + 1, message.model_dump(mode="json", exclude_none=True))

    def _go_on(self, envelope: Envelope, uow: UnitOfWork, step: int, seen: dict[str, Any]) -> None:
        assert envelope.task_id is not None
        uow.events.append(envelope.task_id, step - 1, [("moved", seen)], envelope.message_id)
        head = uow.tasks.head(envelope.task_id)
        assert head is not None
        over = step > self._steps
        uow.tasks.save(moved(head, step, over), step - 1)
        if not over:
            self.dispatch(envelope, uow, step)

    def dispatch(self, envelope: Envelope, uow: UnitOfWork, step: int) -> Envelope:
        """The command of a step, with its attempt."""
        assert envelope.task_id is not None
        command = envelope.follow(self.command(step))
        key = AttemptKey(envelope.task_id, step, self._phase, 1)  # type: ignore[arg-type]
        self._commands.dispatch(uow, key, command)
        return command

    def command(self, step: int) -> Contract:
        if self._phase == "generate":
            return Generate(
                step=step,
                track="fast",
                context=ContextHead(),
                tools=(),
                sampling=Sampling(),
                timeout_s=60,
                policy="scripted",
            )
        action = Action(tool=self._tool, arguments={})
        return ExecuteAction(step=step, action=action, tools=(), limits=SandboxLimits(), isolation="process")


def answer(message: Any) -> Contract:
    """What a worker says to a command of the pocket planner."""
    if isinstance(message, Generate):
        return Generated(step=message.step, text="done", policy="scripted")
    return ActionExecuted(step=message.step)


def new_task(task_id: str) -> TaskHead:
    return TaskHead(task_id, "session_1", "default", "running", 0, "count", "fast")


def moved(head: TaskHead, version: int, over: bool) -> TaskHead:
    from dataclasses import replace

    end = {"status": "succeeded", "outcome": "succeeded", "ended_at": datetime.now(UTC)} if over else {}
    return replace(head, version=version, **end)


def submission() -> Envelope:
    return seal(SubmitTask(instruction="count"), task_id=new_id("task"), session_id="session_1")


def history(database: Database, task_id: str) -> list[dict[str, Any]]:
    """What the transitions of a task saw, in order."""
    with database.begin() as uow:
        return [event.payload for event in uow.events.read(task_id)]


def ended(database: Database, task_id: str) -> bool:
    with database.begin() as uow:
        head = uow.tasks.head(task_id, lock=False)
    return head is not None and head.outcome is not None
