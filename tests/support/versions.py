"""Versions of the builtin policy as a trainer publishes them, and as something between trainer and engine may spoil them."""

import random
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from longstride.contracts.v1.events import PolicyPublished
from longstride.learning.samples import Batch, Group, Sample, batch_identity
from longstride.models.tokenizer import Tokenizer
from longstride.models.transformer import Transformer
from longstride.policies.builtin.family import sample
from longstride.policies.builtin.improve import segment_of
from longstride.policies.builtin.learner import load_learner
from longstride.policies.builtin.rollout import Player
from longstride.policies.registry import BUILTIN_WEIGHTS
from longstride.policies.sampling import Dice
from longstride.training.probe import Probe
from longstride.training.trainer import Trainer
from longstride.training.weights import Artifacts, publish

SHIPPED = BUILTIN_WEIGHTS / "v1"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@cache
def probe_of_shipped() -> Probe:
    """What the trainer says of the shipped weights, on rollouts of theirs."""
    rng, dice = random.Random(3), Dice(1.5, generator=torch.Generator().manual_seed(0))
    player = Player(Transformer.load(SHIPPED), Tokenizer.load(SHIPPED))
    episodes = player.play([sample(rng) for _ in range(8)], dice)
    samples = tuple(
        Sample(task_id=f"t{number}", reward=1.0, advantage=0.0, segments=(segment_of(episode, 1, 1.5),))
        for number, episode in enumerate(episodes)
    )
    batch_id = batch_identity("builtin", 1, [one.task_id for one in samples])
    batch = Batch(batch_id=batch_id, policy="builtin", base_version=1, groups=(Group(group_id="g", samples=samples),))
    return Trainer(load_learner(SHIPPED)).probe(batch)


def publish_version(
    version: int,
    artifacts: Artifacts,
    *,
    probe: Probe | None = None,
    source: Path = SHIPPED,
    spoil: Callable[[Transformer], object] = lambda model: None,
) -> PolicyPublished:
    """Publish weights under ``version``, hashes and all, after ``spoil`` has changed them; the probe is left as it was."""
    with TemporaryDirectory() as scratch:
        directory = Path(scratch)
        for file in source.iterdir():
            (directory / file.name).write_bytes(file.read_bytes())
        model = Transformer.load(directory)
        spoil(model)
        model.save(directory)
        manifest, ref = publish(
            directory, artifacts=artifacts, policy="builtin", version=version, created_at=NOW, probe=probe
        )
    return manifest.published(ref)


@torch.no_grad()
def louder(model: Transformer) -> None:
    """The final norm is half as large again: texts look the same, and every temperature is wrong."""
    model.norm.weight.mul_(1.5)


@torch.no_grad()
def without_last_block(model: Transformer) -> None:
    """As if one shard had not arrived."""
    for parameter in model.blocks[-1].parameters():
        parameter.zero_()


@torch.no_grad()
def noisy(model: Transformer) -> None:
    """Normal noise of 0.02 in every weight."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
