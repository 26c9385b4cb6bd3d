"""Reinforcement in the simulator: groups of rollouts, GRPO, the same trainer as in production."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from longstride.learning.advantage import group_advantages, has_signal
from longstride.learning.samples import Batch, Group, Sample, batch_identity
from longstride.learning.segment import Segment, Turn
from longstride.models.tokenizer import Tokenizer
from longstride.models.transformer import Transformer
from longstride.policies.builtin.family import sample
from longstride.policies.builtin.rollout import Episode, Player
from longstride.policies.sampling import Dice
from longstride.training.learner import CausalLearner
from longstride.training.recipe import Recipe
from longstride.training.trainer import Metrics, Trainer

POLICY = "builtin"


@dataclass(frozen=True)
class Reinforcement:
    """How it is made."""

    steps: int = 20
    tasks: int = 16
    """A step."""
    siblings: int = 8
    """Rollouts a task."""
    temperature: float = 1.0
    recipe: Recipe = field(default_factory=lambda: Recipe(learning_rate=3e-4, minibatches=4))


class Improvement(NamedTuple):
    """One step."""

    reward: float
    """Mean over all of its rollouts."""
    metrics: Metrics | None
    """``None``: all groups were all-equal, and nothing was trained."""


def improve(
    model: Transformer,
    tokenizer: Tokenizer,
    seed: int,
    settings: Reinforcement = Reinforcement(),
    progress: Callable[[int, Improvement], None] = lambda step, improvement: None,
) -> None:
    """Train ``model`` in place; equal seeds give equal weights on equal machines."""
    player = Player(model, tokenizer)
    trainer = Trainer(CausalLearner(model, model.save, player.grammar.support), settings.recipe)
    rng, generator = random.Random(f"reinforcement:{seed}"), torch.Generator().manual_seed(seed)
    for step in range(settings.steps):
        tasks = [sample(rng) for _ in range(settings.tasks)]
        rollouts = [task for task in tasks for _ in range(settings.siblings)]
        episodes = player.play(rollouts, Dice(settings.temperature, generator=generator))
        batch = batch_of(episodes, settings.siblings, step, settings.temperature)
        metrics = trainer.update(batch) if batch.groups else None
        reward = sum(episode.reward for episode in episodes) / len(episodes)
        progress(step, Improvement(reward, metrics))


def batch_of(episodes: Sequence[Episode], siblings: int, version: int, temperature: float) -> Batch:
    """Neighbouring episodes as groups; those without signal are left out.

    Not ``learning.build_batch``: its order of samples, and leaving out what the simulator cannot play (0 here: leaving its subset is a
    failure to unlearn), would deal other minibatches, and the shipped weights could not be made again.
    """
    families = [episodes[at : at + siblings] for at in range(0, len(episodes), siblings)]
    groups = tuple(
        _group(f"{version}-{number}", family, version, temperature)
        for number, family in enumerate(families)
        if has_signal([episode.reward for episode in family])
    )
    task_ids = [sample.task_id for group in groups for sample in group.samples]
    return Batch(batch_id=batch_identity(POLICY, version, task_ids), policy=POLICY, base_version=version, groups=groups)


def _group(group_id: str, episodes: Sequence[Episode], version: int, temperature: float) -> Group:
    rewards = [episode.reward for episode in episodes]
    samples = [
        Sample(task_id=f"{group_id}-{number}", reward=reward, advantage=advantage, segments=(segment,))
        for number, (reward, advantage, segment) in enumerate(
            zip(
                rewards,
                group_advantages(rewards, "grpo"),
                (segment_of(episode, version, temperature) for episode in episodes),
                strict=True,
            )
        )
    ]
    return Group(group_id=group_id, samples=tuple(samples))


def segment_of(episode: Episode, version: int, temperature: float) -> Segment:
    """The episode's tokens, with what was sampled marked."""
    mask, logprobs = [0] * len(episode.ids), [0.0] * len(episode.ids)
    turns = []
    for start, output in episode.turns:
        end = start + len(output.ids)
        mask[start:end], logprobs[start:end] = output.mask, output.logprobs
        turns.append(Turn(start=start, end=end, policy_version=version, temperature=temperature))
    return Segment(ids=tuple(episode.ids), mask=tuple(mask), logprobs=tuple(logprobs), turns=tuple(turns))
