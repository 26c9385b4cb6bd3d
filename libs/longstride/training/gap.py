"""The gate before an update: does the trainer see the policy that acted?

Engine and trainer compute the same log-probabilities by different code. Where they disagree (another template, a lost
grammar mask, stale weights, a wrong temperature) text looks fine and the gradient is wrong. So the trainer's
log-probabilities under the base weights are compared to the recorded ones before anything is learned.
"""

from dataclasses import dataclass

from torch import Tensor

from longstride.training.errors import UpdateRefused
from longstride.training.recipe import Recipe


@dataclass(frozen=True)
class Gap:
    """Trainer against engine, at the base weights."""

    fresh_tokens: int
    """Sampled by the base version: here both must agree."""
    mean: float
    """Mean |difference| over the fresh tokens; 0 without any."""
    largest: float
    stale_tokens: int
    """Sampled by an older version: here a difference is expected, but not a large one."""
    stale_kl: float
    """Mean of k3 over the stale tokens: KL(version that sampled ‖ base), nats a token."""
    impossible: int
    """Tokens to which the trainer gives no probability at all."""


def measure(trainer: Tensor, engine: Tensor, version: Tensor, base_version: int) -> Gap:
    """Compare log-probabilities of the sampled tokens, (N,) each; ``version`` is the one that sampled."""
    possible = trainer.isfinite()
    difference = trainer.double() - engine.double()
    fresh = difference[possible & (version == base_version)].abs()
    stale = difference[possible & (version != base_version)]
    return Gap(
        fresh_tokens=int((version == base_version).sum()),
        mean=_mean(fresh),
        largest=float(fresh.max()) if len(fresh) else 0.0,
        stale_tokens=int((version != base_version).sum()),
        stale_kl=_mean(stale.clamp(max=20).exp() - 1 - stale),
        impossible=int((~possible).sum()),
    )


def require_agreement(gap: Gap, recipe: Recipe) -> None:
    """Let an update go on.

    Raises:
        UpdateRefused: the trainer and the engine disagree, or the batch is too far off policy; the text says which.
    """
    if gap.impossible:
        raise UpdateRefused(
            f"{gap.impossible} sampled tokens have probability 0 under the trainer: "
            "it lacks a token, or masks another grammar than the engine did; nothing was trained"
        )
    if gap.mean > recipe.max_gap_mean or gap.largest > recipe.max_gap:
        raise UpdateRefused(
            f"trainer and engine disagree on the log-probabilities of {gap.fresh_tokens} tokens that the base version "
            f"sampled: {gap.mean:.4g} on average (at most {recipe.max_gap_mean:g}), {gap.largest:.4g} at the most "
            f"(at most {recipe.max_gap:g}); check weights, template, temperature and grammar; nothing was trained"
        )
    if gap.stale_kl > recipe.max_stale_kl:
        raise UpdateRefused(
            f"{gap.stale_tokens} tokens were sampled {gap.stale_kl:.3g} nats a token away from the base version "
            f"(at most {recipe.max_stale_kl:g}): too far off policy to learn from; nothing was trained"
        )


def _mean(values: Tensor) -> float:
    return float(values.mean()) if len(values) else 0.0
