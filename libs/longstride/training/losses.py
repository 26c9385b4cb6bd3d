"""Policy-gradient losses, token by token, and how they are summed.

Shapes: B sequences of T tokens. ``logp`` is log π_θ of each token under the current weights (the only one with a
gradient), ``logp_old`` log π_old under the proximal policy, ``logp_behaviour`` log μ as recorded when it was sampled.
``mask`` (bool) is true on sampled tokens. Every ``*_terms`` function gives a loss to *minimise*, of shape (B, T), and 0
where the mask is false; ``aggregate`` sums it. What is outside the mask, NaN and infinities included, has no
influence on value or gradient. Importance weights never carry a gradient.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

CLAMP = 20.0
"""Log-ratios beyond ±20 (a factor of 5·10⁸) are cut before ``exp``: an infinite ratio would turn the update to NaN."""

Aggregation = Literal["token_mean", "sequence_mean", "sequence_sum_mean", "constant"]
Level = Literal["token", "sequence"]
Divergence = Literal["k1", "k2", "k3", "k3_reweighted"]


def log_ratio(numerator: Tensor, denominator: Tensor, mask: Tensor) -> Tensor:
    """``numerator - denominator`` where the mask holds, cut to ±``CLAMP``; 0 elsewhere."""
    return (_inside(numerator, mask) - _inside(denominator, mask)).clamp(-CLAMP, CLAMP)


def ppo_terms(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    low: float = 0.2,
    high: float = 0.2,
    dual: float | None = None,
) -> Tensor:
    """``-min(rA, clip(r, 1-low, 1+high)A)`` (arXiv 1707.06347; ``high`` > ``low`` is DAPO's clip-higher, 2503.14476).

    Args:
        advantages: (B, T), or (B, 1) for one a sequence.
        dual: c > 1 bounds the loss of a negative advantage at ``-cA`` (arXiv 1912.09729).
    """
    return _clipped(log_ratio(logp, logp_old, mask).exp(), advantages, mask, low, high, dual)


def gspo_terms(
    logp: Tensor, logp_old: Tensor, advantages: Tensor, mask: Tensor, *, low: float = 3e-4, high: float = 4e-4
) -> Tensor:
    """PPO's clip on ``s = exp(mean_t (logπ_θ - logπ_old))``, one ratio a sequence (arXiv 2507.18071).

    A sequence is a row: a segment of a rollout, all its turns together. To be summed by ``sequence_mean``.
    The widths are those of the paper; PPO's 0.2 would clip nothing.
    """
    mean = _sequence_mean(log_ratio(logp, logp_old, mask), mask)
    return _clipped(mean.exp().expand_as(logp), advantages, mask, low, high, None)


def cispo_terms(
    logp: Tensor, logp_old: Tensor, advantages: Tensor, mask: Tensor, *, low: float = 1.0, high: float = 0.28
) -> Tensor:
    """``-sg(clip(r, 1-low, 1+high))·A·logπ_θ``: every token keeps a gradient (arXiv 2506.13585).

    ``low=1`` leaves the ratio unbounded below, as the paper does.
    """
    weight = log_ratio(logp, logp_old, mask).exp().clamp(1 - low, 1 + high).detach()
    return _inside(-weight * advantages * _inside(logp, mask), mask)


def importance_weights(
    logp_old: Tensor, logp_behaviour: Tensor, mask: Tensor, *, cap: float | None = 2.0, level: Level = "token"
) -> Tensor:
    """``sg(min(π_old/μ, cap))`` (decoupled PPO with truncation, arXiv 2505.24298): (B, T), 0 where the mask is false.

    Args:
        cap: ``None`` truncates nothing.
        level: ``token`` weighs each token by its own ratio (biased, low variance); ``sequence`` all tokens of a row by
            the product of its ratios (unbiased without a cap, high variance).
    """
    ratio = log_ratio(logp_old, logp_behaviour, mask)
    if level == "sequence":
        ratio = ratio.sum(-1, keepdim=True).clamp(-CLAMP, CLAMP).expand_as(ratio)
    weights = ratio.exp().detach()
    return _inside(weights if cap is None else weights.clamp(max=cap), mask)


def kl_terms(logp: Tensor, logp_reference: Tensor, mask: Tensor, estimator: Divergence = "k3_reweighted") -> Tensor:
    """Estimators of KL(π_θ ‖ π_ref) from samples of π_θ, with ``x = logπ_ref - logπ_θ``.

    As values all are estimates; as *losses* they differ (arXiv 2512.02556): the gradient of ``k1`` (``-x``) is 0 in
    expectation; ``k2`` (``x²/2``) gives that of the reverse KL; ``k3`` (``e^x - 1 - x``) that of the *forward* KL;
    ``k3_reweighted`` (``(π_θ/sg π_θ)·k3``) again the reverse KL's. ``x`` is cut at +``CLAMP`` alone.
    """
    current = _inside(logp, mask)
    x = (_inside(logp_reference, mask) - current).clamp(max=CLAMP)
    if estimator == "k1":
        return -x
    if estimator == "k2":
        return x.square() / 2
    k3 = x.exp() - 1 - x
    return k3 if estimator == "k3" else (current - current.detach()).exp() * k3


def value_terms(values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, *, clip: float = 0.2) -> Tensor:
    """``½·max((V-R)², (V_clip-R)²)`` with V kept within ``clip`` of its old value (arXiv 1707.06347)."""
    values, old_values, returns = (_inside(tensor, mask) for tensor in (values, old_values, returns))
    clipped = old_values + (values - old_values).clamp(-clip, clip)
    return torch.maximum((values - returns).square(), (clipped - returns).square()) / 2


def bradley_terry(chosen: Tensor, rejected: Tensor, *, margin: Tensor | float = 0.0, centre: float = 0.0) -> Tensor:
    """``-log σ(r⁺ - r⁻ - margin)``, one term a pair, shape (N,).

    Args:
        centre: weight of ``(r⁺ + r⁻)²``; the first part alone does not change when a constant is added to every
            reward, so it leaves their level free (arXiv 2312.09244).
    """
    return -logsigmoid(chosen - rejected - margin) + centre * (chosen + rejected).square()


@dataclass(frozen=True)
class Counts:
    """What a loss is divided by: counts of the *whole* update, not of a micro-batch or a rank.

    With local counts the update would depend on how it is split.
    """

    tokens: int
    """Sampled tokens."""
    sequences: int
    """Rollouts with at least one sampled token."""

    @classmethod
    def of(cls, mask: Tensor) -> "Counts":
        """Counts of a batch whose rows are whole rollouts; ``mask`` is (B, T)."""
        return cls(tokens=int(mask.sum()), sequences=int(mask.any(-1).sum()))


def aggregate(
    terms: Tensor,
    mask: Tensor,
    how: Aggregation,
    counts: Counts,
    *,
    lengths: Tensor | None = None,
    constant: float | None = None,
) -> Tensor:
    """These rows' share of the loss, a scalar: the shares of all micro-batches and ranks add up to the whole.

    Args:
        terms: (B, T).
        how: ``token_mean`` ``ΣΣ/Σ|o|`` (DAPO); ``sequence_mean`` ``(1/G)Σ(1/|o|)Σ`` (GRPO; favours short answers);
            ``sequence_sum_mean`` ``(1/G)ΣΣ``; ``constant`` ``ΣΣ/(G·L)`` (Dr.GRPO).
        counts: of the whole update.
        lengths: (B,), for ``sequence_mean``: the sampled tokens of the *rollout* that each row is a segment of;
            ``None``: each row is a rollout.
        constant: L, for ``constant``: the most tokens a rollout may sample, never the padded width.

    Raises:
        ValueError: ``constant`` is missing or not positive.
    """
    terms = _inside(terms, mask)
    if how == "sequence_mean":
        own = mask.sum(-1) if lengths is None else lengths
        return (terms.sum(-1) / own.clamp(min=1)).sum() / max(counts.sequences, 1)
    return terms.sum() / _divisor(how, counts, constant)


def _divisor(how: Aggregation, counts: Counts, constant: float | None) -> float:
    if how == "token_mean":
        return max(counts.tokens, 1)
    if how == "sequence_sum_mean":
        return max(counts.sequences, 1)
    if constant is None or constant <= 0:
        raise ValueError(f"the aggregation 'constant' needs a positive constant, got {constant}")
    return max(counts.sequences, 1) * constant


def _clipped(ratio: Tensor, advantages: Tensor, mask: Tensor, low: float, high: float, dual: float | None) -> Tensor:
    if dual is not None and dual <= 1:
        raise ValueError(f"a dual clip must be above 1, got {dual}: it would cut the unclipped loss")
    loss = torch.maximum(-ratio * advantages, -ratio.clamp(1 - low, 1 + high) * advantages)
    if dual is not None:
        loss = torch.where(advantages < 0, torch.minimum(loss, -dual * advantages), loss)
    return _inside(loss, mask)


def _inside(tensor: Tensor, mask: Tensor) -> Tensor:
    """The tensor where the mask holds, 0 elsewhere: unlike ``mask * tensor``, without ``0 · inf = NaN``."""
    return torch.where(mask, tensor, torch.zeros_like(tensor))


def _sequence_mean(tensor: Tensor, mask: Tensor) -> Tensor:
    """(B, T) → (B, 1): mean over the mask; 0 for a row without any."""
    return tensor.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
