"""One update of a policy on one batch.

The loss is decoupled PPO: the clip is anchored at ``π_old``, the base version, recomputed here before the first step;
the distance from ``μ``, the version that sampled each token, is corrected by a truncated weight ``π_old/μ``. On policy
both are 1 and this is GRPO (arXiv 2402.03300, 2503.14476, 2505.24298). Anchoring stale tokens at a recomputed
``π_old`` *without* that weight would clip around a policy that never sampled them.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from longstride.contracts.model import Contract
from longstride.learning.samples import Batch, Sample
from longstride.learning.segment import Segment
from longstride.training import losses
from longstride.training.checkpoint import dump_optimizer, restore_optimizer
from longstride.training.errors import UpdateRefused
from longstride.training.gap import Gap, measure, require_agreement
from longstride.training.learner import Learner, Score
from longstride.training.losses import Counts
from longstride.training.probe import SEQUENCES, Probe
from longstride.training.recipe import Recipe
from longstride.training.rows import Row, Rows, collate, micro_batches, rows_of


class Metrics(Contract):
    """What an update did. Means are over sampled tokens unless said otherwise; log-ratios in nats."""

    loss: float
    """Mean over the optimizer steps."""
    grad_norm: float
    """Mean over the optimizer steps, before clipping."""
    optimizer_steps: int
    entropy: float
    """Of the base version."""
    ratio_mean: float
    """New over base version."""
    ratio_max: float
    clip_fraction: float
    """Tokens whose ratio new/base has left the clip's range."""
    kl_base: float
    """k3 of base against new version."""
    kl_behaviour: float
    """k3 of the versions that sampled against the new version."""
    gap_mean: float
    """Trainer against engine at the base weights, |difference| of log-probabilities."""
    gap_max: float
    stale_kl: float
    stale_tokens: int
    tokens: int
    """Sampled tokens trained on."""
    rollouts: int
    groups: int
    dropped: int
    """Rollouts left out when the batch was built; its ``dropped`` says why."""
    reward_mean: float
    """Mean over the rollouts trained on."""


class Anchored(NamedTuple):
    """A micro-batch with what the base version says of it, fixed for the whole update."""

    rows: Rows
    old: Tensor
    """(B, T): log π_old."""
    weights: Tensor
    """(B, T): truncated π_old/μ."""


class Minibatch(NamedTuple):
    """What one optimizer step sees."""

    parts: list[Anchored]
    counts: Counts


class Trainer:
    """Holds a learner and its optimizer across updates."""

    def __init__(self, learner: Learner, recipe: Recipe = Recipe(), optimizer_state: bytes | None = None) -> None:
        """Raises ``UpdateRefused`` when ``optimizer_state`` is not that of this model."""
        self.learner = learner
        self.recipe = recipe
        self._parameters = [p for p in learner.module.parameters() if p.requires_grad]
        self._optimizer = _adamw(self._parameters, recipe)
        if optimizer_state is not None:
            restore_optimizer(self._optimizer, learner.module, optimizer_state)

    def update(self, batch: Batch) -> Metrics:
        """Train on a batch. The same weights, state, batch and recipe give the same result.

        Raises:
            UpdateRefused: nothing to train on, trainer and engine disagree, or the gradient is not finite. The
                weights are unusable after the last of these and unchanged after the others.
        """
        if not batch.groups:
            raise UpdateRefused(f"batch {batch.batch_id} is empty; left out were {batch.dropped.model_dump_json()}")
        # Dropout would move every ratio away from 1 before the first step.
        self.learner.module.eval()
        minibatches, gap, entropy = self._anchor(batch)
        steps = [self._step(minibatch) for minibatch in self._schedule(minibatches)]
        return Metrics(
            loss=_mean([loss for loss, _ in steps]),
            grad_norm=_mean([norm for _, norm in steps]),
            optimizer_steps=len(steps),
            entropy=entropy,
            **self._moved(minibatches),
            gap_mean=gap.mean,
            gap_max=gap.largest,
            stale_kl=gap.stale_kl,
            stale_tokens=gap.stale_tokens,
            tokens=sum(minibatch.counts.tokens for minibatch in minibatches),
            rollouts=len(batch.samples),
            groups=len(batch.groups),
            dropped=batch.dropped.total,
            reward_mean=_mean([sample.reward for sample in batch.samples]),
        )

    def optimizer_state(self) -> bytes:
        """To be given to the trainer of the next version."""
        return dump_optimizer(self._optimizer, self.learner.module)

    @torch.no_grad()
    def probe(self, batch: Batch) -> Probe:
        """The batch's least expected segments as the current weights score them."""
        rows = sorted(rows_of(batch.samples), key=_expected)[:SEQUENCES]
        scored = self.learner.score(collate(rows)).logprobs
        return Probe(segments=tuple(_rescored(row.segment, logp) for row, logp in zip(rows, scored, strict=True)))

    @torch.no_grad()
    def _anchor(self, batch: Batch) -> tuple[list[Minibatch], Gap, float]:
        """Score everything under the base weights, and require that they are those that sampled."""
        hands = self._deal(batch)
        dealt = [[(rows, self.learner.score(rows)) for rows in self._micro_batches(hand)] for hand in hands]
        scored = [pair for part in dealt for pair in part]
        trainer = _sampled((rows, score.logprobs) for rows, score in scored)
        engine = _sampled((rows, rows.behaviour) for rows, _ in scored)
        gap = measure(trainer, engine, _sampled((rows, rows.version) for rows, _ in scored), batch.base_version)
        require_agreement(gap, self.recipe)
        entropy = float(_sampled((rows, score.entropy) for rows, score in scored).mean())
        return [self._minibatch(hand, part) for hand, part in zip(hands, dealt, strict=True)], gap, entropy

    def _deal(self, batch: Batch) -> list[list[Sample]]:
        """Rollouts, shuffled by the seed and dealt out to minibatches: a rollout's segments stay together."""
        samples = list(batch.samples)
        random.Random(f"{self.recipe.seed}:{batch.batch_id}").shuffle(samples)
        hands = min(self.recipe.minibatches, len(samples))
        return [samples[hand::hands] for hand in range(hands)]

    def _micro_batches(self, samples: Sequence[Sample]) -> list[Rows]:
        device = self._parameters[0].device
        return [part.to(device) for part in micro_batches(rows_of(samples), self.recipe.micro_batch_tokens)]

    def _minibatch(self, samples: Sequence[Sample], scored: Sequence[tuple[Rows, Score]]) -> Minibatch:
        parts = [Anchored(rows, score.logprobs, self._importance(rows, score.logprobs)) for rows, score in scored]
        return Minibatch(parts, Counts(tokens=sum(s.trainable for s in samples), sequences=len(samples)))

    def _importance(self, rows: Rows, old: Tensor) -> Tensor:
        recipe = self.recipe
        return losses.importance_weights(
            old, rows.behaviour, rows.mask, cap=recipe.importance_cap, level=recipe.importance_level
        )

    def _schedule(self, minibatches: list[Minibatch]) -> Iterator[Minibatch]:
        for _ in range(self.recipe.epochs):
            yield from minibatches

    def _step(self, minibatch: Minibatch) -> tuple[float, float]:
        """One optimizer step: (loss, gradient norm)."""
        self._optimizer.zero_grad(set_to_none=True)
        loss = 0.0
        for part in minibatch.parts:
            share = self._loss(part, minibatch.counts)
            share.backward()  # type: ignore[no-untyped-call]
            loss += share.item()
        norm = float(nn.utils.clip_grad_norm_(self._parameters, self.recipe.max_grad_norm))
        if not torch.isfinite(torch.tensor([loss, norm])).all():
            raise UpdateRefused(f"the loss ({loss}) or its gradient ({norm}) is not finite; nothing was published")
        self._optimizer.step()
        return loss, norm

    def _loss(self, part: Anchored, counts: Counts) -> Tensor:
        rows, recipe = part.rows, self.recipe
        logp = self.learner.score(rows).logprobs
        terms = part.weights * self._terms(logp, part)
        if recipe.kl_weight:
            terms = terms + recipe.kl_weight * losses.kl_terms(logp, part.old, rows.mask, recipe.kl)
        return losses.aggregate(
            terms, rows.mask, recipe.aggregation, counts, lengths=rows.rollout_tokens, constant=recipe.constant
        )

    def _terms(self, logp: Tensor, part: Anchored) -> Tensor:
        rows, (low, high) = part.rows, self.recipe.clip_widths
        if self.recipe.loss == "gspo":
            return losses.gspo_terms(logp, part.old, rows.advantages, rows.mask, low=low, high=high)
        if self.recipe.loss == "cispo":
            return losses.cispo_terms(logp, part.old, rows.advantages, rows.mask, low=low, high=high)
        dual = self.recipe.dual_clip
        return losses.ppo_terms(logp, part.old, rows.advantages, rows.mask, low=low, high=high, dual=dual)

    @torch.no_grad()
    def _moved(self, minibatches: list[Minibatch]) -> dict[str, float]:
        """How far the weights have gone from where they started and from what sampled."""
        parts = [
            (part, self.learner.score(part.rows).logprobs) for minibatch in minibatches for part in minibatch.parts
        ]
        new = _sampled((part.rows, logp) for part, logp in parts)
        from_base = new - _sampled((part.rows, part.old) for part, _ in parts)
        from_behaviour = new - _sampled((part.rows, part.rows.behaviour) for part, _ in parts)
        ratio, (low, high) = from_base.exp(), self.recipe.clip_widths
        return {
            "ratio_mean": float(ratio.mean()),
            "ratio_max": float(ratio.max()),
            "clip_fraction": float(((ratio < 1 - low) | (ratio > 1 + high)).float().mean()),
            "kl_base": _k3(from_base),
            "kl_behaviour": _k3(from_behaviour),
        }


def _adamw(parameters: list[nn.Parameter], recipe: Recipe) -> AdamW:
    return AdamW(
        parameters,
        lr=recipe.learning_rate,
        betas=recipe.betas,
        eps=recipe.epsilon,
        weight_decay=recipe.weight_decay,
    )


def _expected(row: Row) -> float:
    """Mean log-probability of its sampled tokens when they were sampled."""
    return sum(row.segment.logprobs) / row.segment.trainable


def _rescored(segment: Segment, logprobs: Tensor) -> Segment:
    return segment.model_copy(update={"logprobs": tuple(logprobs[: len(segment.ids)].tolist())})


def _sampled(pairs: Iterable[tuple[Rows, Tensor]]) -> Tensor:
    """(N,): the values at sampled positions, of all micro-batches in order."""
    return torch.cat([values[rows.mask] for rows, values in pairs])


def _k3(log_ratio: Tensor) -> float:
    """KL(denominator ‖ numerator) from samples of the denominator: mean of ``e^x - 1 - x``."""
    x = log_ratio.double().clamp(max=losses.CLAMP)
    return float((x.exp() - 1 - x).mean())


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
