"""Sampling actions within the grammar, one or many prompts at a time."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from longstride.models.kvcache import KVCache
from longstride.models.transformer import Transformer
from longstride.policies.builtin.grammar import FORBIDDEN, START, Grammar
from longstride.policies.sampling import NEVER, Dice, choose, given

Pick = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Logits (B, V), ``-inf`` where an id is not allowed → ids (B,) and their log-probabilities (B,)."""
IDLE = [0]
"""What a finished row reads, at its first position."""


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
    batch = _begin(model, grammar, prompts, max_tokens)
    while batch.unfinished:
        if time.monotonic() > deadline:
            raise DeadlinePassed
        batch.step(partial(choose, dice=dice))
    return batch.outputs


@torch.inference_mode()
def score(
    model: Transformer, grammar: Grammar, prompt: Sequence[int], output: Sequence[int], temperature: float
) -> list[float]:
    """What ``decode`` records of an output when it samples it after this prompt, one log-probability an id, by the same steps.

    Raises:
        ValueError: it could not have been sampled there; the text says why.
    """
    if not output:
        return []
    if not prompt:
        raise ValueError("an output without a prompt")
    grammar.states(torch.tensor(output))
    batch = _begin(model, grammar, [prompt], len(output))
    scored = batch.outputs[0]
    while batch.unfinished:
        batch.step(partial(given, temperature=temperature, tokens=torch.tensor([output[len(scored.ids)]])))
    if len(scored.ids) < len(output):
        raise ValueError(f"{len(prompt) + len(output)} ids do not fit a context of {model.config.context}")
    return scored.logprobs


def _begin(model: Transformer, grammar: Grammar, prompts: Sequence[Sequence[int]], max_tokens: int) -> "_Batch":
    # Rows are padded to the longest piece that is read at once, and padding takes positions, too.
    longest, padding = max(map(len, prompts)), grammar.longest_forced
    room = min(max_tokens, model.config.context - longest - padding)
    if room < 1:
        raise ValueError(f"a prompt of {longest} ids leaves no room in a context of {model.config.context}")
    return _Batch(model, grammar, prompts, room, longest + room + padding)


class _Batch:
    """The outputs that are being written, one a row of the cache.

    A finished row stays, and is fed a token that nobody reads, until half of the rows are finished: to copy the cache at each
    end would cost more than the decoding.
    """

    def __init__(
        self, model: Transformer, grammar: Grammar, prompts: Sequence[Sequence[int]], room: int, capacity: int
    ) -> None:
        self._model, self._grammar, self._room = model, grammar, room
        self.outputs = [Output() for _ in prompts]
        self._rows = list(range(len(prompts)))
        """Which output each row of the cache is."""
        self._states = [START] * len(prompts)
        self._cache = KVCache(model.config, len(prompts), capacity)
        self._lengths = torch.zeros(len(prompts), dtype=torch.int64)
        self._logits = self._feed(prompts)

    @property
    def unfinished(self) -> bool:
        """Whether any output is."""
        return not all(map(self._finished, self._rows))

    def step(self, pick: Pick) -> None:
        """Pick one id a row, add what the grammar forces after it, and read both."""
        states = torch.tensor([START if self._finished(row) else self._states[row] for row in self._rows])
        tokens, logprobs = pick(self._logits.masked_fill(~self._grammar.allowed[states], NEVER))
        picked = zip(self._rows, tokens.tolist(), logprobs.tolist(), strict=True)
        pieces = [IDLE if self._finished(row) else self._write(row, *choice) for row, *choice in picked]
        running = [index for index, row in enumerate(self._rows) if not self._finished(row)]
        if 2 * len(running) <= len(self._rows):
            self._keep(running)
            pieces = [pieces[index] for index in running]
        if running:
            self._logits = self._feed(pieces)

    def _write(self, row: int, token: int, logprob: float) -> list[int]:
        """The picked id and the forced ones after it."""
        output = self.outputs[row]
        start = len(output.ids)
        output.add(token, logprob, chosen=True)
        state = self._grammar.after(self._states[row], token)
        while (forced := self._grammar.only(state)) != FORBIDDEN and len(output.ids) < self._room:
            output.add(forced, 0.0, chosen=False)
            state = self._grammar.after(state, forced)
        self._states[row] = state
        output.complete = state == self._grammar.done
        return output.ids[start:]

    def _finished(self, row: int) -> bool:
        return self.outputs[row].complete or len(self.outputs[row].ids) >= self._room

    def _keep(self, running: list[int]) -> None:
        index = torch.tensor(running, dtype=torch.int64)
        self._rows = [self._rows[i] for i in running]
        self._cache, self._lengths = self._cache.select(index), self._lengths[index]

    def _feed(self, pieces: Sequence[Sequence[int]]) -> Tensor:
        """Read ids, ragged, at the end of each row; the logits after the last of each, (rows, vocab_size)."""
        idle = torch.tensor([piece is IDLE for piece in pieces])
        self._lengths = self._lengths.masked_fill(idle, 0)
        counts = torch.tensor([len(piece) for piece in pieces])
        padded = torch.zeros(len(pieces), int(counts.max()), dtype=torch.int64)
        for row, piece in enumerate(pieces):
            padded[row, : len(piece)] = torch.tensor(piece)
        features = self._model.features(padded, cache=self._cache, start=self._lengths)
        self._lengths = self._lengths + counts
        return self._model.logits(features[torch.arange(len(pieces)), counts - 1])
