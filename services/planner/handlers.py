"""Message in → transition → message out. One message is one transaction."""

import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from longstride.agent import transitions
from longstride.agent.admission import accept
from longstride.agent.decision import Decision
from longstride.agent.soundness import objection
from longstride.agent.task import Task
from longstride.agent.tool_rules import faults
from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.envelope import Envelope, MessageError, another_tenants
from longstride.contracts.ids import derived_id
from longstride.contracts.v1 import commands as c
from longstride.contracts.v1 import events as v
from longstride.contracts.v1.check import CommandCheck
from longstride.contracts.v1.tool_rules import RulesInForce
from longstride.messaging.commands import Commands
from longstride.messaging.handling import DeliveryInfo, Handler
from longstride.messaging.outbox import Outbox
from longstride.observability.names import DECIDE, STEP, TASK_ID
from longstride.observability.spans import root, segment_root, span
from longstride.policies.naming import unnameable
from longstride.storage.artifacts import ArtifactStore
from longstride.storage.tasks import TaskHead
from longstride.storage.unit_of_work import UnitOfWork
from services.planner.askers import asked_by
from services.planner.audit_trail import entries
from services.planner.effects import Scene, carry_out, store_objects
from services.planner.landmarks import mark
from services.planner.projection import project
from services.planner.references import references
from services.planner.task_log import TaskLog

logger = logging.getLogger(__name__)

DEFAULT_AGENT = "default"
"""The agent definition that needs no rules."""


def now() -> datetime:
    """The planner's clock."""
    return datetime.now(UTC)


class UnknownTask(LookupError):
    """Nobody has submitted this task, or not yet: the message is tried again before it becomes a dead letter."""


class Planner:
    """Decides what a task does next. Everything it knows is in PostgreSQL; any number of planners may run."""

    def __init__(
        self,
        artifacts: ArtifactStore,
        outbox: Outbox,
        commands: Commands,
        *,
        tools: Collection[str],
        capacity: int,
        segment_steps: int = 200,
        clock: Callable[[], datetime] = now,
    ) -> None:
        """
        Args:
            artifacts: where contexts and inputs are kept.
            outbox: takes the messages.
            tools: the names of those that a task may ask for.
            commands: takes the commands to workers.
            capacity: tasks that may run at the same time, over all planners.
            segment_steps: steps after which a task's trace goes on in a new, linked one.
            clock: the time of events.
        """
        self._artifacts = artifacts
        self._outbox = outbox
        self._tools = tools
        self._commands = commands
        self._segment_steps = segment_steps
        self._capacity = capacity
        self._clock = clock
        self._log = TaskLog()
        self._unreadable: frozenset[str] = frozenset()

    def submit_task(self, envelope: Envelope, message: c.SubmitTask, uow: UnitOfWork, delivery: DeliveryInfo) -> None:
        """Make a task of it, once, and start what there is room for."""
        task_id = envelope.task_id or derived_id("task", envelope.message_id)
        if (known := self._known(uow, envelope, message, task_id)) is not None:
            return self._greet_again(uow, known, envelope, delivery)
        if why := objection(message, self._tools) or unnameable(message.policy):
            raise MessageError(f"not a task: {why}")
        _require_own(uow, envelope, message)
        rules = self._rules(uow, envelope.tenant, message.agent)
        source = self._source(uow, envelope.tenant, message)
        session = envelope.session_id or (source.session_id if source else derived_id("session", task_id))
        decision = accept(task_id, session, envelope.tenant, message, self._clock(), source, rules)
        head = _new_head(envelope, decision.task, message, delivery)
        with span(DECIDE, envelope.type, attributes={TASK_ID: task_id}):
            store_objects(decision, self._artifacts)
            self._log.create(uow, head, decision, envelope.message_id)
            self._write(self._scene(uow, head, decision, envelope))
            self._admit(uow, envelope)
        return None

    def transition(self, envelope: Envelope, message: Any, uow: UnitOfWork, delivery: DeliveryInfo) -> None:
        """Any message about a task that exists."""
        step = transitions.TRANSITIONS[type(message)]
        self._decide(uow, envelope, _task_id(envelope), lambda decision: step(decision, message), required=True)

    def task_ended(self, envelope: Envelope, message: v.TaskEnded, uow: UnitOfWork, delivery: DeliveryInfo) -> None:
        """A part of a larger task ended: the larger one goes on."""
        task_id = _task_id(envelope)
        head = uow.tasks.head(task_id, lock=False)
        if head and head.parent_task_id:
            part = lambda decision: transitions.on_subtask_ended(decision, message, task_id)  # noqa: E731
            self._decide(uow, envelope, head.parent_task_id, part)

    def part_given_up(self, uow: UnitOfWork, envelope: Envelope, reason: str) -> None:
        """A part of a larger task became a dead letter: the larger one learns that it failed, and does not wait for it."""
        message = envelope.message()
        if not isinstance(message, c.SubmitTask) or not message.parent_task_id or not envelope.task_id:
            return
        task_id = envelope.task_id
        known = uow.tasks.head(task_id, lock=False)
        if known and known.tenant == envelope.tenant:
            return  # it was taken before, and will end
        ended = v.TaskEnded(outcome="failed", reason="input_unusable", detail=reason[:8000])
        part = lambda decision: transitions.on_subtask_ended(decision, ended, task_id)  # noqa: E731
        try:
            self._decide(uow, envelope, message.parent_task_id, part)
        except ValueError as error:
            logger.warning("%s is not told that its part %s was refused: %s", message.parent_task_id, task_id, error)

    def _decide(
        self,
        uow: UnitOfWork,
        envelope: Envelope,
        task_id: str,
        step: Callable[[Decision], None],
        required: bool = False,
    ) -> None:
        found = self._log.load(uow, task_id)
        if found is None:
            if required:
                raise UnknownTask(f"there is no task {task_id!r}")
            return
        head, task = found
        if head.tenant != envelope.tenant:
            raise MessageError(another_tenants(envelope, task_id))
        with span(
            DECIDE,
            envelope.type,
            parent=head.traceparent if task_id != envelope.task_id else None,
            attributes={TASK_ID: task_id, STEP: task.step},
        ):
            now = self._clock()
            history = lambda number: self._log.history(uow, task_id, number)  # noqa: E731
            recent_calls = lambda tool: uow.tool_rules.recent_calls(task.tenant, tool, now)  # noqa: E731
            decision = Decision(task, now, min(envelope.occurred_at, now), history, recent_calls)
            step(decision)
            self._commit(uow, head, decision, envelope)
            if head.status == "running" and decision.task.phase not in ("thinking", "acting"):
                self._admit(uow, envelope)

    def _commit(self, uow: UnitOfWork, head: TaskHead, decision: Decision, envelope: Envelope) -> None:
        if not decision.events:
            return self._write(self._scene(uow, head, decision, envelope))
        store_objects(decision, self._artifacts)
        mark(decision.events)
        saved = self._log.save(uow, self._dated(head, decision), decision, envelope.message_id)
        return self._write(self._scene(uow, saved, decision, envelope))

    def _scene(self, uow: UnitOfWork, head: TaskHead, decision: Decision, envelope: Envelope) -> Scene:
        return Scene(uow, self._outbox, self._commands, head, decision, envelope)

    def _dated(self, head: TaskHead, decision: Decision) -> TaskHead:
        """The head with its start and end as soon as they have happened, and the trace segment of its step."""
        started = head.started_at or (decision.now if decision.task.clock_started else None)
        step = decision.task.step
        segment = segment_root(head.id, step, self._segment_steps, head.traceparent) if step else head.traceparent
        ended = decision.now if decision.task.ended else None
        return replace(head, started_at=started, traceparent=segment, ended_at=ended)

    def _write(self, scene: Scene) -> None:
        """Everything that rides along with the events."""
        carry_out(scene)
        task = scene.decision.task
        for step, columns in project(task, scene.decision.events).items():
            scene.uow.steps.upsert(task.id, step, **columns)
        for found in references(scene.decision.events):
            about = {"session_id": task.session_id, "task_id": task.id}
            scene.uow.artifacts.add(found.ref, kind=found.kind, step=found.step, name=found.name, **about)
        for entry in entries(scene.decision, scene.cause):
            scene.uow.audit.append(task.tenant, entry.model_dump(mode="json", exclude_none=True), scene.decision.now)

    def _admit(self, uow: UnitOfWork, envelope: Envelope) -> None:
        """Start queued tasks while there is room. Last in the transaction: admissions of all planners wait for each other."""
        picked = uow.tasks.admit(self._capacity, self._unreadable)
        while unreadable := {task_id for task_id in picked if not self._start(uow, task_id, envelope)}:
            self._unreadable |= unreadable  # a new set: other threads may be reading the old one
            picked = uow.tasks.admit(self._capacity, self._unreadable)

    def _start(self, uow: UnitOfWork, task_id: str, envelope: Envelope) -> bool:
        """``False``: this build cannot read it. It stays queued, for one that can, and keeps no other from starting."""
        try:
            found = self._log.load(uow, task_id)
        except ValueError as error:
            logger.error("queued task %s cannot be read, so it is not started here: %s", task_id, error)
            return False
        assert found is not None, "an admitted task is locked and exists"
        head, task = found
        links, attributes = [envelope.traceparent], {TASK_ID: task_id}
        with span(DECIDE, "start", parent=head.traceparent, links=links, attributes=attributes):
            decision = Decision(task, self._clock())
            transitions.start(decision)
            self._commit(uow, head, decision, envelope)
        return True

    def _known(self, uow: UnitOfWork, envelope: Envelope, message: c.SubmitTask, task_id: str) -> TaskHead | None:
        known = uow.tasks.head(task_id)
        if known is None and message.idempotency_key:
            same = uow.tasks.by_idempotency_key(envelope.tenant, message.idempotency_key)
            known = same and uow.tasks.head(same.id)
        if known is not None and known.tenant != envelope.tenant:
            raise MessageError(f"not a task: the id {task_id!r} is another's; give it one of its own")
        return known

    def _greet_again(self, uow: UnitOfWork, head: TaskHead, envelope: Envelope, delivery: DeliveryInfo) -> None:
        """The same task comes back: its outcome goes to whoever asks again as well, at once if there is one."""
        if not delivery.reply_to:
            return
        if not head.outcome:
            uow.tasks.save(asked_by(head, delivery), head.version)
        same = {"task_id": head.id, "session_id": head.session_id, "traceparent": head.traceparent}
        accepted = envelope.follow(v.TaskAccepted(duplicate=True), **same)
        self._outbox.reply(uow, accepted, delivery.reply_to, delivery.correlation_id)
        if head.outcome:
            found = self._log.load(uow, head.id)
            assert found is not None, "its head is locked"
            ended = envelope.follow(transitions.task_ended(found[1]), **same)
            self._outbox.reply(uow, ended, delivery.reply_to, delivery.correlation_id)

    def _rules(self, uow: UnitOfWork, tenant: str, agent: str) -> RulesInForce | None:
        """The rules on tools that hold for a new task."""
        found = uow.tool_rules.latest(tenant, agent)
        if found is None and agent != DEFAULT_AGENT:
            raise MessageError(f"not a task: tenant {tenant!r} has set no rules for an agent {agent!r}")
        if found and (why := list(faults(found.in_force.rules, self._tools))):
            raise MessageError(f"the rules of agent {agent!r} cannot hold, set them again: {'; '.join(why)}")
        return found.in_force if found else None

    def _source(self, uow: UnitOfWork, tenant: str, message: c.SubmitTask) -> Task | None:
        if message.fork_of is None:
            return None
        task_id, step = message.fork_of
        head = uow.tasks.head(task_id, lock=False)
        source = self._log.read(uow, task_id, step) if head and head.tenant == tenant else None
        if source is None:
            raise MessageError(f"cannot fork task {task_id!r} at step {step}: it has no such step with an observation")
        return source


def foresee(uow: UnitOfWork, envelope: Envelope) -> None:
    """A transition reads the head of its task first of all."""
    if envelope.task_id is not None and envelope.type != "task_ended":
        uow.tasks.foresee(envelope.task_id)


def _task_id(envelope: Envelope) -> str:
    if envelope.task_id is None:
        raise MessageError(f"{envelope.type} needs a task_id in its envelope")
    return envelope.task_id


def _require_own(uow: UnitOfWork, envelope: Envelope, message: c.SubmitTask) -> None:
    """A session is one tenant's, and so is what lies in it: who knows its name, or an object's, is not let in by that.

    Raises:
        MessageError: the task names what is another tenant's.
    """
    parent = uow.tasks.head(message.parent_task_id, lock=False) if message.parent_task_id else None
    if message.parent_task_id is not None and (parent is None or parent.tenant != envelope.tenant):
        raise MessageError(f"not a task: there is no task {message.parent_task_id!r} that it could be a part of")
    sessions = {ref.key.partition("/")[0] for ref in _objects(message)}
    if envelope.session_id:
        sessions.add(envelope.session_id)
    if parent is not None:
        sessions.discard(parent.session_id)  # an earlier build let its tenant in
    if sessions and (foreign := uow.tasks.foreign_session(sessions, envelope.tenant)):
        raise MessageError(f"not a task: the session {foreign!r} is another tenant's")


def _objects(message: c.SubmitTask) -> Iterator[ArtifactRef]:
    """What it refers to."""
    checked = [file for check in message.checks if isinstance(check, CommandCheck) for file in check.files]
    yield from (file.ref for file in (*message.inputs, *checked) if file.ref)
    if message.workspace:
        yield message.workspace


def _new_head(envelope: Envelope, task: Task, message: c.SubmitTask, delivery: DeliveryInfo) -> TaskHead:
    return TaskHead(
        id=task.id,
        session_id=task.session_id,
        tenant=task.tenant,
        status="queued",
        version=0,
        instruction=message.instruction[:500],
        track=message.track,
        priority=message.priority,
        policy=message.policy,
        concurrency_key=message.concurrency_key,
        idempotency_key=message.idempotency_key,
        group_id=message.group_id,
        parent_task_id=message.parent_task_id,
        reply_to=delivery.reply_to,
        correlation_id=delivery.correlation_id,
        traceparent=root(task.id, session_id=task.session_id, tenant=task.tenant, links=[envelope.traceparent]),
    )


def handlers(planner: Planner) -> dict[str, Handler]:
    """The planner's rows of the flow."""
    return {
        "submit_task": planner.submit_task,
        "generated": planner.transition,
        "action_executed": planner.transition,
        "task_ended": planner.task_ended,
        "cancel_task": planner.transition,
        "pause_task": planner.transition,
        "resume_task": planner.transition,
        "message_task": planner.transition,
        "approve_action": planner.transition,
        "expire_task": planner.transition,
    }
