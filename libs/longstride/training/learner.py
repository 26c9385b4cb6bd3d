"""The port to a policy that is trained, and its implementation for causal language models.

The trainer sees log-probabilities only. They must be those of the distribution that was sampled from: after the
temperature and within the grammar; anything else makes every importance ratio wrong while the text looks fine.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from longstride.training.errors import UpdateRefused
from longstride.training.rows import Rows

Support = Callable[[Tensor], Tensor]
"""Ids of one turn's output (N,) → (N, V) bool: which ids might have been sampled at each of its positions.

Raises:
    ValueError: the output could not have been sampled.
"""


class Score(NamedTuple):
    """What a policy thinks of the tokens that were sampled."""

    logprobs: Tensor
    """(B, T) fp32, with gradient; 0 where the mask is false."""
    entropy: Tensor
    """(B, T) fp32 nats, without gradient; 0 where the mask is false."""


class Learner(Protocol):
    """A policy's weights, loaded for training."""

    @property
    def module(self) -> nn.Module:
        """Whose parameters are updated."""
        ...

    def score(self, rows: Rows) -> Score:
        """Log-probabilities of the sampled tokens under the current weights and the distribution they were sampled from."""
        ...

    def save(self, directory: Path) -> None:
        """Write the weights; other files of the directory are left as they are."""
        ...


Load = Callable[[Path], Learner]
"""Reads a policy's directory."""


class CausalLearner:
    """A module from ids (B, T) to logits (B, T, V), sampled at a temperature and, where given, within a grammar."""

    def __init__(self, module: nn.Module, save: Callable[[Path], None], support: Support | None = None) -> None:
        self.module = module
        self.save = save
        self._support = support
        self._supports: WeakKeyDictionary[Rows, Tensor] = WeakKeyDictionary()

    def score(self, rows: Rows) -> Score:
        """See ``Learner``; logits are kept for sampled positions alone."""
        rows, source = self._on_device(rows), rows
        before = self.module(rows.ids[:, :-1])[rows.mask[:, 1:]].float()
        logits = before / rows.temperature[rows.mask][:, None]
        if self._support is not None:
            logits = logits.masked_fill(~self._supported(source).to(logits.device), float("-inf"))
        log_softmax = logits.log_softmax(-1)
        chosen = log_softmax.gather(1, rows.ids[rows.mask][:, None])[:, 0]
        return Score(_spread(chosen, rows.mask), _spread(_entropy(log_softmax.detach()), rows.mask))

    def _on_device(self, rows: Rows) -> Rows:
        if bool(rows.mask[:, 0].any()):
            raise UpdateRefused("the first token of a segment is marked as sampled, but nothing precedes it")
        return rows.to(next(self.module.parameters()).device)

    def _supported(self, rows: Rows) -> Tensor:
        """(N, V) bool over the sampled positions; made once, for it is the same at every weight."""
        if rows not in self._supports:
            self._supports[rows] = torch.cat([self._support_of(ids)[mask] for ids, mask in rows.outputs])
        return self._supports[rows]

    def _support_of(self, output: Tensor) -> Tensor:
        assert self._support is not None
        try:
            return self._support(output)
        except ValueError as error:
            raise UpdateRefused(
                f"an output of the batch cannot have been sampled: {error}; nothing was trained"
            ) from error


def _spread(values: Tensor, mask: Tensor) -> Tensor:
    """(N,) → (B, T): one value a sampled position, 0 elsewhere."""
    return torch.zeros(mask.shape, dtype=values.dtype, device=values.device).masked_scatter(mask, values)


def _entropy(log_softmax: Tensor) -> Tensor:
    """(N, V) → (N,); forbidden ids, at -inf, add 0 and not NaN."""
    possible = log_softmax.isfinite()
    return -torch.where(possible, log_softmax.exp() * log_softmax.masked_fill(~possible, 0.0), 0.0).sum(-1)
