"""The job behind ``update_policy``: batch and base version in, published version out.

Nothing is visible until the caller commits the ``policies`` row, unique by batch id and by version: a kill at any
point leaves objects that nothing refers to, and the job is run again from the start. The same command then gives
the same bytes, and so the same objects; where floating point differs (another machine), the row decides which counts.
"""

import shutil
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import ValidationError

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.envelope import explain
from longstride.contracts.v1.commands import UpdatePolicy
from longstride.contracts.v1.events import PolicyPublished
from longstride.learning.samples import Batch
from longstride.training.errors import UpdateRefused
from longstride.training.learner import Load
from longstride.training.recipe import Recipe
from longstride.training.trainer import Metrics, Trainer
from longstride.training.weights import Artifacts, Lineage, Manifest, fetch, open_manifest, publish


def update_policy(
    command: UpdatePolicy,
    *,
    base: ArtifactRef,
    load: Load,
    artifacts: Artifacts,
    directory: Path,
    created_at: datetime,
    recipe: Recipe = Recipe(),
) -> tuple[PolicyPublished, Manifest]:
    """Train one update and publish its version, ``base_version + 1``.

    Args:
        command: what to train on, and from where.
        base: the manifest of the base version, from its ``policies`` row. The version that ships gets one by
            ``weights.publish`` when it is first served.
        load: reads the policy's directory for training.
        artifacts: where batch, base and result lie.
        directory: of this machine, for weights; kept between calls, it spares fetching the base again.
        created_at: goes into the manifest; take the command's ``occurred_at``, so that a second run makes the same one.
        recipe: how to train.

    Returns:
        The event to be sent, and the manifest it refers to, in the transaction that also inserts the row.

    Raises:
        UpdateRefused: the batch is empty, unreadable, not this command's, or the trainer does not see the policy that acted.
        WeightsRefused: the base is not the manifest of the base version.
    """
    batch = read_batch(command, artifacts)
    parent = open_manifest(base, artifacts, policy=command.policy, version=command.base_version)
    weights = fetch(parent, artifacts, directory)
    trainer = Trainer(load(weights), recipe, artifacts.get(parent.optimizer) if parent.optimizer else None)
    metrics = trainer.update(batch)
    with TemporaryDirectory(prefix=".training-", dir=directory) as scratch:
        trained = _saved(trainer, weights, Path(scratch) / "files")
        manifest, ref = publish(
            trained,
            artifacts=artifacts,
            policy=command.policy,
            version=command.base_version + 1,
            created_at=created_at,
            optimizer=trainer.optimizer_state(),
            probe=trainer.probe(batch),
            lineage=_lineage(command, batch, base, recipe, metrics),
        )
    return manifest.published(ref), manifest


def read_batch(command: UpdatePolicy, artifacts: Artifacts) -> Batch:
    """The batch that a command names.

    Raises:
        UpdateRefused: it is no batch, or another one.
    """
    try:
        batch = Batch.model_validate_json(artifacts.get(command.batch))
    except ValidationError as error:
        raise UpdateRefused(f"{command.batch.key} is not a batch: {explain(error)}") from error
    named = (command.batch_id, command.policy, command.base_version)
    if (batch.batch_id, batch.policy, batch.base_version) != named:
        raise UpdateRefused(
            f"{command.batch.key} is {batch.batch_id} for {batch.policy}@{batch.base_version}; "
            f"the command names {command.batch_id} for {command.policy}@{command.base_version}"
        )
    return batch


def _saved(trainer: Trainer, base: Path, directory: Path) -> Path:
    """The base's directory with the new weights: config, tokenizer and model card go along."""
    shutil.copytree(base, directory)
    trainer.learner.save(directory)
    return directory


def _lineage(command: UpdatePolicy, batch: Batch, base: ArtifactRef, recipe: Recipe, metrics: Metrics) -> Lineage:
    return Lineage(
        parent=base,
        parent_version=command.base_version,
        batch_id=batch.batch_id,
        batch=command.batch,
        task_ids=batch.task_ids,
        recipe=recipe.model_dump(mode="json"),
        metrics=metrics.model_dump(),
    )
