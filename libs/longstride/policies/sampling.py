"""Choosing the next id from logits; torch."""

from dataclasses import dataclass

import torch
from torch import Tensor

from longstride.contracts.v1.commands import Sampling

NEVER = float("-inf")


@dataclass(frozen=True)
class Dice:
    """How to choose."""

    temperature: float = 1.0
    """0 takes the likeliest."""
    top_p: float = 1.0
    generator: torch.Generator | None = None

    @classmethod
    def of(cls, sampling: Sampling, turns: int) -> "Dice":
        """For the answer to a conversation of so many turns.

        With a seed the same conversation gets the same answer, and its turns do not share their random numbers.
        """
        generator = torch.Generator()
        if sampling.seed is None:
            generator.seed()
        else:
            generator.manual_seed((sampling.seed * 1_000_003 + turns) % 2**63)
        return cls(sampling.temperature, sampling.top_p, generator)


def choose(logits: Tensor, dice: Dice) -> tuple[Tensor, Tensor]:
    """Sample an id a row.

    Args:
        logits: (B, V); ``-inf`` where an id is not allowed. A row needs one that is.
        dice: how.

    Returns:
        ids (B,), and their natural-log probabilities (B,): of the distribution that was sampled from, after temperature
        and top-p, renormalised. At temperature 0, of the distribution at temperature 1.
    """
    if dice.temperature == 0:
        return given(logits, dice.temperature, logits.argmax(-1))
    logprobs = tempered(logits, dice.temperature)
    if dice.top_p < 1:
        logprobs = _nucleus(logprobs, dice.top_p)
    tokens = torch.multinomial(logprobs.exp(), 1, generator=dice.generator)
    return tokens[:, 0], logprobs.gather(1, tokens)[:, 0]


def given(logits: Tensor, temperature: float, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """What ``choose`` returns when ``tokens`` (B,) were chosen, at a temperature and without top-p."""
    return tokens, tempered(logits, temperature).gather(1, tokens[:, None])[:, 0]


def tempered(logits: Tensor, temperature: float) -> Tensor:
    """(B, V) natural-log probabilities; those of temperature 1 at temperature 0."""
    return (logits / (temperature or 1.0)).log_softmax(-1)


def _nucleus(logprobs: Tensor, top_p: float) -> Tensor:
    """The smallest set of likeliest ids that holds ``top_p`` of the probability, renormalised (arXiv 1904.09751)."""
    ordered, index = logprobs.sort(-1, descending=True)
    before = ordered.exp().cumsum(-1) - ordered.exp()
    kept = torch.zeros_like(logprobs, dtype=torch.bool).scatter(1, index, before < top_p)
    return logprobs.masked_fill(~kept, NEVER).log_softmax(-1)
