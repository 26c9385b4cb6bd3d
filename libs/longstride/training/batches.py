"""From finished episodes to an ``update_policy`` command: chosen, claimed in the ledger, stored, sent. No torch."""

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.envelope import Envelope, seal
from longstride.contracts.v1.commands import UpdatePolicy
from longstride.contracts.v1.tokens import TokenRecord
from longstride.learning.samples import Batch, Candidate, build_batch
from longstride.learning.segment import StoredRecord
from longstride.learning.trajectory import Trajectory
from longstride.messaging.outbox import Outbox
from longstride.storage.artifacts import ArtifactStore
from longstride.storage.trajectories import StoredTrajectory
from longstride.storage.unit_of_work import UnitOfWork

SESSION = "policies"
"""Batches belong to no task's session."""
MOST = 512
"""Trajectories looked at for one batch."""


class NothingToTrain(ValueError):
    """There is nothing that an update could learn from; the text says what was left out and why."""


def ask_for_update(
    uow: UnitOfWork,
    outbox: Outbox,
    artifacts: ArtifactStore,
    policy: str,
    *,
    least_groups: int = 1,
    max_staleness: int = 4,
) -> Envelope:
    """Make a batch of every group that is ready, and send the command to train on it.

    All of it is in the caller's transaction, but for the batch's object, which comes first.

    Args:
        uow: the transaction.
        outbox: takes the command.
        artifacts: token records are read, and the batch is written, here.
        policy: whose episodes; its latest version is the base.
        least_groups: fewer groups with a signal are not worth an update.
        max_staleness: versions an episode may lie behind the base.

    Returns:
        The command.

    Raises:
        NothingToTrain: the policy has no version, an update is running, or too few groups are left.
    """
    base = uow.policies.latest(policy)
    if base is None:
        raise NothingToTrain(f"policy {policy!r} has no published version to start from")
    if running := uow.training_ledger.running(policy):
        raise NothingToTrain(
            f"the update of {running} has not published yet; if its job died for good, replay it: longstride dead-letters list"
        )
    batch = collect(uow, artifacts, policy, base.version, max_staleness)
    if len(batch.groups) < least_groups:
        told = f"{len(batch.groups)} groups with a signal, {least_groups} wanted; left out: {_reasons(batch)}"
        raise NothingToTrain(f"{told}. {advice(batch, uow.trajectories.running())}")
    ref = artifacts.put(batch.model_dump_json().encode(), session=SESSION, kind="batch", media_type="application/json")
    uow.artifacts.add(ref, session_id=SESSION, kind="batch")
    uow.training_ledger.claim(policy, batch.task_ids, batch.batch_id)
    return _send(uow, outbox, batch, ref)


def collect(uow: UnitOfWork, artifacts: ArtifactStore, policy: str, base_version: int, max_staleness: int) -> Batch:
    """The batch of what is ready: rewarded, untrained, recent, and with no sibling still running."""
    ready = uow.trajectories.untrained(policy, MOST, least_version=base_version - max_staleness)
    candidates = [_candidate(uow, artifacts, stored) for stored in ready]
    return build_batch(candidates, policy=policy, base_version=base_version, max_staleness=max_staleness)


def _candidate(uow: UnitOfWork, artifacts: ArtifactStore, stored: StoredTrajectory) -> Candidate:
    trajectory = Trajectory.model_validate_json(artifacts.get(stored.ref))
    reward = uow.rewards.latest(stored.task_id)
    records = [
        StoredRecord(ref, TokenRecord.model_validate_json(artifacts.get(ref))) for ref in trajectory.token_records
    ]
    return Candidate(trajectory, reward.value if reward else None, records)


def _send(uow: UnitOfWork, outbox: Outbox, batch: Batch, ref: ArtifactRef) -> Envelope:
    command = UpdatePolicy(batch_id=batch.batch_id, batch=ref, policy=batch.policy, base_version=batch.base_version)
    envelope = seal(command)
    outbox.post(uow, envelope)
    return envelope


def _reasons(batch: Batch) -> str:
    dropped = batch.dropped.model_dump()
    return ", ".join(f"{count} {reason}" for reason, count in dropped.items() if count) or "nothing"


def advice(batch: Batch, running: int = 0) -> str:
    """What would bring a signal: to wait for the rollouts of groups that still run, else by what most were left out for."""
    if running:
        verb = "rollout of a group still runs" if running == 1 else "rollouts of groups still run"
        return f"{running} {verb}: ask again when they have ended (longstride tasks --status running)"
    reason, count = max(batch.dropped.model_dump().items(), key=lambda item: item[1])
    return ADVICE.get(reason, MORE) if count else MORE


MORE = "Make groups: longstride run … --group 8 with a check"
ADVICE = {
    "all_equal": "The rollouts of a group are all right, or all wrong: raise --temperature, or ask something that"
    " the policy gets right now and then",
    "no_siblings": "A rollout needs siblings to be compared with: longstride run … --group 8",
    "not_sampled": "Greedy rollouts show no choices: run the group with --temperature 1, and without a top-p",
    "unrewarded": "Without a verdict there is nothing to learn: run the group with a check, such as --expect",
}
