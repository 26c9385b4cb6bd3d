"""The job ``update_policy``: a batch in, a version out. Idempotent by batch, so it may be asked for twice."""

import logging
from pathlib import Path

from longstride.contracts.envelope import Envelope
from longstride.contracts.most import excess
from longstride.contracts.v1.commands import UpdatePolicy
from longstride.contracts.v1.events import PolicyPublished
from longstride.messaging.job_runner import PlainJob
from longstride.messaging.outbox import Outbox
from longstride.observability import names
from longstride.observability.spans import span
from longstride.storage.artifacts import ArtifactStore
from longstride.storage.database import Database
from longstride.storage.policies import PolicyVersion
from longstride.storage.retry import retrying
from longstride.storage.unit_of_work import UnitOfWork

logger = logging.getLogger(__name__)


class PolicyTrainer:
    """Runs updates, one at a time. torch is imported by the first."""

    def __init__(self, database: Database, artifacts: ArtifactStore, outbox: Outbox, directory: Path) -> None:
        """
        Args:
            database: where versions are published.
            artifacts: batches, weights and manifests.
            outbox: takes ``policy_published``.
            directory: of this machine, for weights.
        """
        self._database = database
        self._artifacts = artifacts
        self._outbox = outbox
        self._directory = directory

    def update_policy(self, envelope: Envelope, message: UpdatePolicy) -> None:
        """Train on the batch unless that was done, and publish the version in one transaction.

        A command that cannot be carried out is given up: the ledger says why, and its trajectories are not offered again.
        """
        from longstride.training.errors import UpdateRefused, WeightsRefused

        with self._database.begin() as uow:
            done = uow.policies.by_batch(message.batch_id)
            base = None if excess(message) else uow.policies.get(message.policy, message.base_version)
        if done is not None:
            return self._publish(envelope, done)
        with span(names.UPDATE_POLICY, message.policy, attributes={names.BATCH_ID: message.batch_id}):
            try:
                if base is None:
                    raise UpdateRefused(f"{message.policy} has no version {message.base_version} to start from")
                version = self._train(envelope, message, base)
            except (UpdateRefused, WeightsRefused) as error:
                return self._give_up(message, str(error))
        return self._publish(envelope, version)

    def _train(self, envelope: Envelope, message: UpdatePolicy, base: PolicyVersion) -> PolicyVersion:
        from longstride.policies.builtin.learner import load_learner
        from longstride.training.update import update_policy

        published, manifest = update_policy(
            message,
            base=base.manifest,
            load=load_learner,
            artifacts=self._artifacts,
            directory=self._directory,
            created_at=envelope.occurred_at,
        )
        metrics = manifest.lineage.metrics if manifest.lineage else {}
        return PolicyVersion(
            message.policy,
            published.policy_version,
            published.manifest,
            message.base_version,
            message.batch_id,
            metrics,
        )

    def _publish(self, envelope: Envelope, version: PolicyVersion) -> None:
        event = PolicyPublished(
            policy=version.name,
            policy_version=version.version,
            parent_version=version.parent_version,
            manifest=version.manifest,
            batch_id=version.batch_id,
        )

        def publish(uow: UnitOfWork) -> None:
            uow.policies.publish(version)
            uow.artifacts.add(version.manifest, session_id="policies", kind="policy")
            self._outbox.post(uow, envelope.follow(event))

        retrying(self._database, publish)
        logger.info("published %s@%d", version.name, version.version)

    def _give_up(self, message: UpdatePolicy, why: str) -> None:
        logger.error("no update of %s from %s: %s", message.policy, message.batch_id, why)
        with self._database.begin() as uow:
            uow.training_ledger.refuse(message.policy, message.batch_id, why)


def jobs(trainer: PolicyTrainer) -> dict[str, PlainJob]:
    """The trainer's row of the flow."""
    return {"update_policy": trainer.update_policy}
