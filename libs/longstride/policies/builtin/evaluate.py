"""How often the policy is right: on tasks that training never drew, in the simulator."""

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

import torch

from longstride.policies.builtin.family import KINDS, TROUBLES, FamilyTask, sample
from longstride.policies.builtin.rollout import Episode, Player
from longstride.policies.sampling import Dice

HELD_OUT = "held out"
"""Seeds the tasks that are kept for measuring; training's are seeded by integers and other words."""


@dataclass(frozen=True)
class Success:
    """Right answers among tries."""

    right: int
    tries: int

    @property
    def rate(self) -> float:
        """In [0, 1]; 0 without tries."""
        return self.right / self.tries if self.tries else 0.0


@dataclass(frozen=True)
class Evaluation:
    """Success by kind of question and by trouble."""

    temperature: float
    overall: Success
    by_kind: Mapping[str, Success]
    by_trouble: Mapping[str, Success]
    corrected: Success
    """Of the episodes in which a call failed."""

    def as_json(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)


def held_out(count: int) -> list[FamilyTask]:
    """The first ``count`` tasks for measuring, always the same."""
    rng = random.Random(HELD_OUT)
    return [sample(rng) for _ in range(count)]


def evaluate(player: Player, count: int = 300, temperature: float = 0.0, seed: int = 0) -> Evaluation:
    """Play the held-out tasks once each."""
    dice = Dice(temperature, generator=torch.Generator().manual_seed(seed))
    episodes = player.play(held_out(count), dice)
    return Evaluation(
        temperature=temperature,
        overall=_success(episodes),
        by_kind=_table(((episode.task.kind, episode) for episode in episodes), KINDS),
        by_trouble=_table(((episode.task.trouble, episode) for episode in episodes), TROUBLES),
        corrected=_success(episode for episode in episodes if episode.failures),
    )


def _table(pairs: Iterable[tuple[str, Episode]], order: Iterable[str]) -> dict[str, Success]:
    grouped = defaultdict[str, list[Episode]](list)
    for key, episode in pairs:
        grouped[key].append(episode)
    return {key: _success(grouped[key]) for key in order}


def _success(episodes: Iterable[Episode]) -> Success:
    rewards = [episode.reward for episode in episodes]
    return Success(int(sum(rewards)), len(rewards))
