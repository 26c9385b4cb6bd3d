"""Carrying out what a transition decided, inside its transaction: rows, messages, timers. Objects come first."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from longstride.agent.decision import (
    Abandon,
    CountCall,
    Decision,
    Dispatch,
    Reply,
    Send,
    SetDeadline,
    Settle,
    Store,
)
from longstride.contracts.envelope import Envelope
from longstride.contracts.v1.commands import ExpireTask
from longstride.contracts.v1.events import TaskEnded
from longstride.messaging.commands import Commands
from longstride.messaging.lease import AttemptKey
from longstride.messaging.outbox import Outbox
from longstride.messaging.timers import set_timer
from longstride.observability.propagation import stamped
from longstride.storage.artifacts import ArtifactStore
from longstride.storage.tasks import TaskHead
from longstride.storage.unit_of_work import UnitOfWork
from services.planner.askers import askers


@dataclass(frozen=True, slots=True)
class Scene:
    """What an effect needs: the transaction, the task's head, the decision, and the message that caused it."""

    uow: UnitOfWork
    outbox: Outbox
    commands: Commands
    head: TaskHead
    decision: Decision
    cause: Envelope


def store_objects(decision: Decision, artifacts: ArtifactStore) -> None:
    """Write the decision's objects. Called before anything is committed: an orphan is harmless, a dangling reference is not."""
    for effect in decision.effects:
        if isinstance(effect, Store):
            session, kind, _ = effect.ref.key.split("/")
            ref = artifacts.put(effect.data, session=session, kind=kind, media_type=effect.ref.media_type)
            assert ref == effect.ref, "an object's reference depends on its content alone"


def carry_out(scene: Scene) -> None:
    """Write the rows of every effect, in order."""
    for effect in scene.decision.effects:
        EFFECTS[type(effect)](scene, effect)


def _dispatch(scene: Scene, effect: Dispatch) -> None:
    """A command to a worker, under the next attempt of its step's phase."""
    step, phase, task = effect.command.step, effect.phase, scene.decision.task
    attempt = 1 + _attempts_before(scene, effect)
    envelope = _envelope(scene, effect.command, task.id).model_copy(update={"attempt": attempt})
    scene.commands.dispatch(scene.uow, AttemptKey(task.id, step, phase, attempt), envelope)


def _attempts_before(scene: Scene, effect: Dispatch) -> int:
    """Only an action that waited for approval has been dispatched before."""
    if effect.phase == "generate" or not scene.decision.task.approved:
        return 0
    return scene.uow.attempts.last(scene.decision.task.id, effect.command.step, effect.phase)


def _settle(scene: Scene, effect: Settle) -> None:
    scene.uow.attempts.settle(scene.decision.task.id, effect.step, effect.phase)


def _abandon(scene: Scene, effect: Abandon) -> None:
    scene.uow.attempts.abandon(scene.decision.task.id)


def _send(scene: Scene, effect: Send) -> None:
    scene.outbox.post(scene.uow, _envelope(scene, effect.message, effect.task_id))


def _count_call(scene: Scene, effect: CountCall) -> None:
    scene.uow.tool_rules.count_call(scene.decision.task.tenant, effect.tool, scene.decision.now)


def _reply(scene: Scene, effect: Reply) -> None:
    for queue, correlation_id in askers(scene.head):
        envelope = _envelope(scene, effect.message, scene.head.id)
        scene.outbox.reply(scene.uow, envelope, queue, correlation_id)


def _deadline(scene: Scene, effect: SetDeadline) -> None:
    key = f"deadline:{scene.head.id}"
    if effect.seconds is None:
        return scene.uow.timers.remove(key)
    due = scene.decision.now + timedelta(seconds=effect.seconds)
    return set_timer(scene.uow, key, due, _envelope(scene, ExpireTask(), scene.head.id))


def _stored(scene: Scene, effect: Store) -> None:
    """Already written, by ``store_objects``."""


def _envelope(scene: Scene, message: Any, task_id: str) -> Envelope:
    """A message about a task, caused by the one in hand; the client learns the trace id with the outcome."""
    if isinstance(message, TaskEnded) and scene.head.traceparent:
        message = message.model_copy(update={"trace_id": scene.head.traceparent.split("-")[1]})
    about = {"task_id": task_id, "session_id": scene.head.session_id, "tenant": scene.head.tenant}
    return stamped(scene.cause.follow(message, traceparent=scene.head.traceparent, **about))


EFFECTS: Mapping[type, Callable[[Scene, Any], None]] = {
    Store: _stored,
    Dispatch: _dispatch,
    Settle: _settle,
    Abandon: _abandon,
    Send: _send,
    CountCall: _count_call,
    Reply: _reply,
    SetDeadline: _deadline,
}
