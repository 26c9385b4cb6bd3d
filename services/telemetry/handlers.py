"""Message in → trajectories, rewards and batches → message out."""

import logging

from longstride.agent.events import ActionObserved, ActionProposed, Submitted, load
from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.envelope import Envelope, MessageError, another_tenants
from longstride.contracts.v1.commands import RecordFeedback
from longstride.contracts.v1.events import PolicyPublished, TaskEnded
from longstride.learning.reward import Component, Reward, with_feedback
from longstride.learning.trajectory import TaskIdentity, Trajectory, assemble, pair
from longstride.messaging.handling import DeliveryInfo, Handler
from longstride.messaging.outbox import Outbox
from longstride.observability import names
from longstride.observability.spans import span
from longstride.storage.artifacts import ArtifactStore
from longstride.storage.rewards import StoredReward
from longstride.storage.trajectories import StoredTrajectory
from longstride.storage.unit_of_work import UnitOfWork
from longstride.training.batches import NothingToTrain, ask_for_update

logger = logging.getLogger(__name__)


class Recorder:
    """Keeps what was learned from, and asks for updates when there is enough of it."""

    def __init__(self, artifacts: ArtifactStore, outbox: Outbox, *, update_groups: int = 0) -> None:
        """
        Args:
            artifacts: where trajectories and batches are kept.
            outbox: takes ``update_policy``.
            update_groups: ask for an update as soon as so many groups have a signal; 0 leaves it to people.
        """
        self._artifacts = artifacts
        self._outbox = outbox
        self._update_groups = update_groups

    def task_ended(self, envelope: Envelope, message: TaskEnded, uow: UnitOfWork, delivery: DeliveryInfo) -> None:
        """Record the trajectory and its first reward."""
        assert envelope.task_id is not None, "an ended task has an id"
        head = uow.tasks.head(envelope.task_id, lock=False)
        if head is not None and head.tenant != envelope.tenant:
            raise MessageError(another_tenants(envelope))
        with span(names.RECORD_TRAJECTORY, attributes={names.OUTCOME: message.outcome, names.REASON: message.reason}):
            trajectory = self._trajectory(envelope, message, uow)
            data = trajectory.model_dump_json(exclude_none=True).encode()
            ref = self._artifacts.put(
                data, session=trajectory.session_id, kind="trajectory", media_type="application/json"
            )
            uow.trajectories.add(_row(trajectory, ref))
            uow.artifacts.add(ref, session_id=trajectory.session_id, task_id=trajectory.task_id, kind="trajectory")
            _reward(uow, trajectory.task_id, trajectory.rewards[-1])
        if self._update_groups and trajectory.group_id and trajectory.complete:
            self._ask(uow, trajectory.policy)

    def record_feedback(
        self, envelope: Envelope, message: RecordFeedback, uow: UnitOfWork, delivery: DeliveryInfo
    ) -> None:
        """A person's score is a newer version of the reward."""
        stored = uow.trajectories.get(envelope.task_id or "")
        if stored is None:
            raise LookupError(f"task {envelope.task_id!r} has no trajectory yet: feedback is for tasks that have ended")
        if stored.tenant != envelope.tenant:
            raise MessageError(another_tenants(envelope))
        latest = uow.rewards.latest(stored.task_id)
        assert latest is not None, "a trajectory and its first reward are one transaction"
        _reward(uow, stored.task_id, with_feedback(_judgement(latest), message, stored.reason))  # type: ignore[arg-type]

    def policy_published(
        self, envelope: Envelope, message: PolicyPublished, uow: UnitOfWork, delivery: DeliveryInfo
    ) -> None:
        """The update is done: its trajectories are behind this version now."""
        logger.info("policy %s has version %d", message.policy, message.policy_version)
        if message.batch_id:
            uow.training_ledger.published(message.policy, message.batch_id, message.policy_version)

    def _trajectory(self, envelope: Envelope, message: TaskEnded, uow: UnitOfWork) -> Trajectory:
        assert envelope.task_id is not None, "an ended task has an id"
        assert envelope.session_id is not None, "an ended task has a session"
        events = [load(row.type, row.payload) for row in uow.events.read(envelope.task_id, limit=message.last_seq)]
        submit = next(event.submit for event in events if isinstance(event, Submitted))
        answers = [event for event in events if isinstance(event, ActionProposed)]
        results = [event for event in events if isinstance(event, ActionObserved)]
        identity = TaskIdentity(envelope.task_id, envelope.session_id, envelope.tenant)
        return assemble(identity, submit, pair(answers, results), message)

    def _ask(self, uow: UnitOfWork, policy: str) -> None:
        try:
            ask_for_update(uow, self._outbox, self._artifacts, policy, least_groups=self._update_groups)
        except NothingToTrain as reason:
            logger.debug("no update of %s yet: %s", policy, reason)


def _row(trajectory: Trajectory, ref: ArtifactRef) -> StoredTrajectory:
    return StoredTrajectory(
        task_id=trajectory.task_id,
        session_id=trajectory.session_id,
        tenant=trajectory.tenant,
        policy=trajectory.policy,
        outcome=trajectory.outcome,
        reason=trajectory.reason,
        ref=ref,
        group_id=trajectory.group_id,
        policy_version=trajectory.policy_version,
    )


def _reward(uow: UnitOfWork, task_id: str, reward: Reward) -> None:
    components = [component.model_dump() for component in reward.components]
    uow.rewards.add(task_id, reward.value, components, reward.source, reason=reward.reason, by=reward.by)


def _judgement(stored: StoredReward) -> Reward:
    components = tuple(Component.model_validate(component) for component in stored.components)
    return Reward(version=stored.version, value=stored.value, source=stored.source, components=components)


def handlers(recorder: Recorder) -> dict[str, Handler]:
    """Telemetry's rows of the flow."""
    return {
        "task_ended": recorder.task_ended,
        "record_feedback": recorder.record_feedback,
        "policy_published": recorder.policy_published,
    }
