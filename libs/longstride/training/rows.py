"""A batch as padded tensors: one row a segment, cut into micro-batches of bounded size."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from longstride.learning.samples import Sample
from longstride.learning.segment import Segment


class Row(NamedTuple):
    """A segment with what it inherits from its rollout."""

    segment: Segment
    advantage: float
    rollout_tokens: int
    """Sampled tokens of the whole rollout, all segments together."""


@dataclass(frozen=True, eq=False)
class Rows:
    """B segments, padded at the end to T tokens. Position t of a (B, T) tensor speaks of token t itself."""

    ids: Tensor
    """(B, T) int64; padding is 0."""
    mask: Tensor
    """(B, T) bool: sampled by the policy."""
    behaviour: Tensor
    """(B, T) fp32: recorded log-probabilities; 0 where nothing was sampled."""
    temperature: Tensor
    """(B, T) fp32: of the turn; 1 outside turns."""
    version: Tensor
    """(B, T) int64: the policy version of the turn; -1 outside turns."""
    turn: Tensor
    """(B, T) int64: number of the turn within its row; -1 outside turns."""
    advantages: Tensor
    """(B, 1) fp32."""
    rollout_tokens: Tensor
    """(B,) int64."""

    @property
    def outputs(self) -> Iterable[tuple[Tensor, Tensor]]:
        """(ids, mask) of each turn, (N,) each, row by row."""
        for ids, mask, turn in zip(self.ids, self.mask, self.turn, strict=True):
            for number in range(int(turn.max()) + 1):
                yield ids[turn == number], mask[turn == number]

    def to(self, device: torch.device) -> "Rows":
        """The same rows on another device."""
        return Rows(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})


def rows_of(samples: Iterable[Sample]) -> list[Row]:
    """The segments that hold something to train on."""
    return [
        Row(segment, sample.advantage, sample.trainable)
        for sample in samples
        for segment in sample.segments
        if segment.trainable
    ]


def micro_batches(rows: Sequence[Row], tokens: int) -> list[Rows]:
    """Rows of like length together, each micro-batch at most ``tokens`` padded tokens; a longer row stands alone."""
    batches: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: len(row.segment.ids)):
        # Lengths ascend, so this row sets the padded width.
        if batches and (len(batches[-1]) + 1) * len(row.segment.ids) <= tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
    return [collate(batch) for batch in batches]


def collate(rows: Sequence[Row]) -> Rows:
    """Pad rows into tensors."""
    return Rows(
        ids=_padded([torch.tensor(row.segment.ids) for row in rows], 0),
        mask=_padded([torch.tensor(row.segment.mask, dtype=torch.bool) for row in rows], False),
        behaviour=_padded([torch.tensor(row.segment.logprobs, dtype=torch.float32) for row in rows], 0.0),
        temperature=_padded(
            [_by_turn(row.segment, [t.temperature for t in row.segment.turns], 1.0) for row in rows], 1.0
        ),
        version=_padded([_by_turn(row.segment, [t.policy_version for t in row.segment.turns], -1) for row in rows], -1),
        turn=_padded([_by_turn(row.segment, list(range(len(row.segment.turns))), -1) for row in rows], -1),
        advantages=torch.tensor([[row.advantage] for row in rows], dtype=torch.float32),
        rollout_tokens=torch.tensor([row.rollout_tokens for row in rows]),
    )


def _by_turn(segment: Segment, values: Sequence[float], outside: float) -> Tensor:
    """(T,): each turn's value over its tokens."""
    tensor = torch.full((len(segment.ids),), outside)
    for turn, value in zip(segment.turns, values, strict=True):
        tensor[turn.start : turn.end] = value
    return tensor


def _padded(tensors: list[Tensor], value: float) -> Tensor:
    return pad_sequence(tensors, batch_first=True, padding_value=value)
