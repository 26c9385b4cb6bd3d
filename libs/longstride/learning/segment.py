"""Token-in, token-out: a rollout's token records joined into the exact sequences that the policy saw and sampled.

Text is never re-tokenized, because that drifts from what was generated. A record's prompt holds only the ids after its
``prefix``, so the records of one growing context join into one segment. Where the context was rebuilt (compaction, a
dropped message), a new segment starts. Prompts, observations and forced tokens have mask 0.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple

from pydantic import Field, model_validator

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.model import Contract
from longstride.contracts.v1.tokens import TokenRecord


class BrokenChain(ValueError):
    """A token record continues one that is not among the rollout's."""


class StoredRecord(NamedTuple):
    """A token record and where it lies: others name it as their prefix by that reference."""

    ref: ArtifactRef
    record: TokenRecord


class Turn(Contract):
    """One model call's output within a segment: the ids from ``start`` to ``end``, ``end`` excluded."""

    start: Annotated[int, Field(ge=0)]
    end: Annotated[int, Field(ge=0)]
    policy_version: int
    """The weights that sampled it."""
    temperature: Annotated[float, Field(ge=0)]
    """Logits were divided by it before the recorded log-probabilities were taken."""


class Segment(Contract):
    """One token sequence, as long as its context grew by appending alone. Lengths: all T."""

    ids: tuple[int, ...]
    mask: tuple[Annotated[int, Field(ge=0, le=1)], ...]
    """1 where the policy chose the id; those alone are trained on."""
    logprobs: tuple[float, ...]
    """Recorded log-probability of each id under the sampling distribution; 0 where nothing was sampled."""
    turns: tuple[Turn, ...]

    @model_validator(mode="after")
    def _consistent(self) -> "Segment":
        if not len(self.ids) == len(self.mask) == len(self.logprobs):
            raise ValueError("ids, mask and logprobs must have one entry a token")
        if any(turn.start > turn.end or turn.end > len(self.ids) for turn in self.turns):
            raise ValueError("a turn reaches outside its segment")
        if sum(self.mask) != sum(sum(self.mask[turn.start : turn.end]) for turn in self.turns):
            raise ValueError("a token with mask 1 belongs to no turn, or to two")
        return self

    @property
    def trainable(self) -> int:
        """How many tokens have mask 1."""
        return sum(self.mask)


def flatten(records: Iterable[TokenRecord]) -> tuple[list[int], list[int], list[float]]:
    """Join records of one chain, oldest first: ``(ids, mask, logprobs)``, each of shape (T,)."""
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    for record in records:
        ids += [*record.prompt_ids, *record.output_ids]
        mask += [*_zeros(record.prompt_ids), *record.mask]
        logprobs += [*(0.0 for _ in record.prompt_ids), *_sampled_logprobs(record)]
    return ids, mask, logprobs


def segments(stored: Sequence[StoredRecord]) -> tuple[Segment, ...]:
    """A rollout's records, in the order they were made, as segments: each sampled token has mask 1 in exactly one.

    A record that continues an *earlier* one than the last opens a segment whose start repeats that context with mask 0.

    Raises:
        BrokenChain: a prefix is not among the records before it.
    """
    return tuple(_segment(context, chain) for context, chain in _chains(stored))


def _segment(context: Sequence[TokenRecord], chain: Sequence[TokenRecord]) -> Segment:
    seen, _, _ = flatten(context)
    ids, mask, logprobs = flatten(chain)
    return Segment(
        ids=(*seen, *ids),
        mask=(*_zeros(seen), *mask),
        logprobs=(*(0.0 for _ in seen), *logprobs),
        turns=tuple(_turns(chain, len(seen))),
    )


def _turns(chain: Sequence[TokenRecord], offset: int) -> Iterable[Turn]:
    for record in chain:
        start = offset + len(record.prompt_ids)
        offset = start + len(record.output_ids)
        yield Turn(start=start, end=offset, policy_version=record.policy_version, temperature=record.temperature)


def _chains(stored: Sequence[StoredRecord]) -> list[tuple[list[TokenRecord], list[TokenRecord]]]:
    """(records that are context alone, records that are trained on) of each segment."""
    lineage: dict[ArtifactRef, list[TokenRecord]] = {}
    chains: list[tuple[list[TokenRecord], list[TokenRecord]]] = []
    last: ArtifactRef | None = None
    for ref, record in stored:
        context = _lineage_of(record, lineage)
        if record.prefix is not None and record.prefix == last:
            chains[-1][1].append(record)
        else:
            chains.append((context, [record]))
        lineage[ref] = [*context, record]
        last = ref
    return chains


def _lineage_of(record: TokenRecord, lineage: dict[ArtifactRef, list[TokenRecord]]) -> list[TokenRecord]:
    if record.prefix is None:
        return []
    if record.prefix not in lineage:
        raise BrokenChain(f"a token record continues {record.prefix.key}, which is not among the rollout's records")
    return lineage[record.prefix]


def _zeros(ids: Sequence[int]) -> list[int]:
    return [0] * len(ids)


def _sampled_logprobs(record: TokenRecord) -> Iterable[float]:
    return (logprob if chosen else 0.0 for logprob, chosen in zip(record.logprobs, record.mask, strict=True))
