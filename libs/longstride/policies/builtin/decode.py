"""Sampling actions within the grammar, one or many prompts at a time."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from longstride.models.kvcache import KVCache
from longstride.models.transformer import Transformer
from longstride.policies.builtin.grammar import FORBIDDEN, START, Grammar
from longstride.policies.sampling import NEVER, Dice, choose


class DeadlinePassed(Exception):
    """The time was up before the last token."""


@dataclass
class Output:
    """What was sampled after one prompt. Lengths: all N."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    """Of the distribution that was sampled from: masked by the grammar, tempered, cut by top-p, renormalised.
    At temperature 0, of the masked distribution at temperature 1. 0 for a forced id."""
    mask: list[int] = field(default_factory=list)
    """0 where the grammar left one id only."""
    complete: bool = False
    """The action ended; otherwise the room did."""

    def add(self, token: int, logprob: float, chosen: bool) -> None:
        """One id more."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.mask.append(int(chosen))


@torch.inference_mode()
def decode(
    model: Transformer,
    grammar: Grammar,
    prompts: Sequence[Sequence[int]],
    dice: Dice,
    max_tokens: int,
    deadline: float = float("inf"),
) -> list[Output]:
    """One output a prompt.

    Args:
        max_tokens: the most ids of an output; also kept within the model's context.
        deadline: on ``time.monotonic``.

    Raises:
        DeadlinePassed: it came first.
        ValueError: a prompt leaves no room in the model's context.
    """
    room = min(max_tokens, model.config.context - max(map(len, prompts)))
    if room < 1:
        raise ValueError(
            f"a prompt of {max(map(len, prompts))} ids leaves no room in a context of {model.config.context}"
        )
    batch = _Batch(model, grammar, prompts, room)
    while batch.rows:
        if time.monotonic() > deadline:
            raise DeadlinePassed
        batch.step(dice)
    return batch.outputs


class _Batch:
    """The rows that are still being written."""

    def __init__(self, model: Transformer, grammar: Grammar, prompts: Sequence[Sequence[int]], room: int) -> None:
        self._model, self._grammar, self._room = model, grammar, room
        self.outputs = [Output() for _ in prompts]
        self.rows = list(range(len(prompts)))
        """Indices of unfinished outputs, one for each row of the cache."""
        self._states = [START] * len(prompts)
        self._cache = KVCache(model.config, len(prompts), max(map(len, prompts)) + room)
        self._lengths = torch.zeros(len(prompts), dtype=torch.int64)
        self._logits = self._feed(prompts)

    def step(self, dice: Dice) -> None:
        """Sample one id a row, add what the grammar forces after it, and read both."""
        allowed = self._grammar.allowed[torch.tensor([self._states[row] for row in self.rows])]
        tokens, logprobs = choose(self._logits.masked_fill(~allowed, NEVER), dice)
        written = [
            self._write(row, token, logprob)
            for row, token, logprob in zip(self.rows, tokens.tolist(), logprobs.tolist(), strict=True)
        ]
        left = [index for index, row in enumerate(self.rows) if not self._finished(row)]
        if len(left) < len(self.rows):
            self._keep(left)
        if left:
            self._logits = self._feed([written[index] for index in left])

    def _write(self, row: int, token: int, logprob: float) -> list[int]:
        """The sampled id and the forced ones after it."""
        output = self.outputs[row]
        start = len(output.ids)
        output.add(token, logprob, chosen=True)
        self._states[row] = state = int(self._grammar.table[self._states[row], token])
        while (forced := int(self._grammar.forced[state])) != FORBIDDEN and len(output.ids) < self._room:
            output.add(forced, 0.0, chosen=False)
            self._states[row] = state = int(self._grammar.table[state, forced])
        output.complete = state == self._grammar.done
        return output.ids[start:]

    def _finished(self, row: int) -> bool:
        return self.outputs[row].complete or len(self.outputs[row].ids) >= self._room

    def _keep(self, left: list[int]) -> None:
        index = torch.tensor(left, dtype=torch.int64)
        self.rows = [self.rows[i] for i in left]
        self._cache, self._lengths = self._cache.select(index), self._lengths[index]

    def _feed(self, pieces: Sequence[Sequence[int]]) -> Tensor:
        """Read ids, ragged, at the end of each row; the logits after the last of each, (rows, vocab_size)."""
        counts = torch.tensor([len(piece) for piece in pieces])
        padded = torch.zeros(len(pieces), int(counts.max()), dtype=torch.int64)
        for row, piece in enumerate(pieces):
            padded[row, : len(piece)] = torch.tensor(piece)
        features = self._model.features(padded, cache=self._cache, start=self._lengths)
        self._lengths = self._lengths + counts
        return self._model.logits(features[torch.arange(len(pieces)), counts - 1])
