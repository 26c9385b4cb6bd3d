"""The gate before a version is served: does the engine see the weights that the trainer published?

A version carries a few sequences with the log-probabilities that the trainer, after its last step, gives to their
sampled tokens. An engine that has loaded the version scores them by its own code path (cache, kernels, precision) and
serves only when it agrees. Hashes prove the bytes; this proves what is computed from them. No torch.
"""

from collections.abc import Sequence
from math import isfinite
from typing import Annotated, Literal

from pydantic import Field, model_validator

from longstride.contracts.model import Contract
from longstride.learning.segment import Segment
from longstride.training.errors import WeightsRefused

SEQUENCES = 4
"""How many a probe holds: of the batch, those whose tokens were least expected. A sure policy is as sure after much harm: at the
builtin's shortest sequences, normal noise of 0.02 in every weight moves the mean by 0.007; at the least expected ones, by 0.2."""
MAX_MEAN, MAX_SINGLE = 0.05, 1.0
"""Largest mean, and largest single, |engine - trainer|; bf16 engines are measured at 0.006 and 0.27."""


class Probe(Contract):
    """Stored as JSON beside the weights; ``Manifest.probe`` refers to it."""

    format_version: Literal[1] = 1
    segments: Annotated[tuple[Segment, ...], Field(min_length=1)]
    """Their ``logprobs`` are the trainer's, at the published weights, where ``mask`` is 1."""

    @model_validator(mode="after")
    def _proves_something(self) -> "Probe":
        if not any(segment.trainable for segment in self.segments):
            raise ValueError("a probe without a sampled token proves nothing")
        return self


def require_served(probe: Probe, engine: Sequence[Sequence[float]]) -> float:
    """Let an engine serve: the mean |engine - trainer| over the sampled tokens.

    Args:
        probe: of the version.
        engine: for each segment, one log-probability an id, of the same tempered, grammar-masked distribution; only
            those where the mask is 1 are read.

    Raises:
        WeightsRefused: they differ too much.
    """
    gaps = [gap for segment, scored in zip(probe.segments, engine, strict=True) for gap in _gaps(segment, scored)]
    mean, largest = sum(gaps) / len(gaps), max(gaps)
    if not isfinite(mean) or mean > MAX_MEAN or largest > MAX_SINGLE:
        raise WeightsRefused(
            f"the engine's log-probabilities differ from the trainer's by {mean:.4g} on average (at most {MAX_MEAN:g}), "
            f"{largest:.4g} at the most (at most {MAX_SINGLE:g}), over {len(gaps)} tokens: it does not serve these weights"
        )
    return mean


def _gaps(segment: Segment, scored: Sequence[float]) -> list[float]:
    triples = zip(segment.mask, segment.logprobs, scored, strict=True)
    return [abs(trainer - engine) for chosen, trainer, engine in triples if chosen]
