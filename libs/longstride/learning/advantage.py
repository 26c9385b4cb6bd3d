"""Advantages: how much better than expected an action, or a whole rollout, turned out.

The group estimators take the rewards of one group of sibling rollouts, and give one advantage a rollout; it belongs to
all of that rollout's sampled tokens. A singleton group, or one whose rewards are all equal, holds no signal: zeros.
"""

from collections.abc import Callable, Mapping, Sequence
from math import fsum, isfinite, sqrt
from typing import Literal

Estimator = Literal["grpo", "dr_grpo", "rloo", "maxrl"]
Mask = Sequence[int | bool]

EQUAL = 1e-9
"""Rewards closer than this are equal: a rounding error must not be scaled up to a full advantage."""


def has_signal(rewards: Sequence[float]) -> bool:
    """Whether a group can teach anything: at least two rollouts, not all rewarded alike."""
    return len(rewards) > 1 and max(rewards) - min(rewards) > EQUAL


def grpo(rewards: Sequence[float], *, ddof: Literal[0, 1] = 1, epsilon: float = 1e-6) -> list[float]:
    """``(R - mean) / (std + ε)`` (arXiv 2402.03300).

    Args:
        rewards: of one group.
        ddof: 1 divides the squared deviations by n-1 (TRL, verl), 0 by n (the paper's text leaves it open).
        epsilon: added to the standard deviation.
    """
    if not has_signal(rewards):
        return [0.0] * len(rewards)
    centred = dr_grpo(rewards)
    std = sqrt(fsum(c * c for c in centred) / (len(rewards) - ddof))
    return [c / (std + epsilon) for c in centred]


def dr_grpo(rewards: Sequence[float]) -> list[float]:
    """``R - mean``: GRPO without the difficulty bias of the standard deviation (arXiv 2503.20783)."""
    mean = _mean(rewards)
    return [r - mean for r in rewards] if has_signal(rewards) else [0.0] * len(rewards)


def rloo(rewards: Sequence[float]) -> list[float]:
    """``R_i`` less the mean of the *other* rewards (arXiv 2402.14740)."""
    if not has_signal(rewards):
        return [0.0] * len(rewards)
    total, others = fsum(rewards), len(rewards) - 1
    return [r - (total - r) / others for r in rewards]


def maxrl(rewards: Sequence[float]) -> list[float]:
    """``(R - mean) / mean`` for rewards of 0 or more (arXiv 2602.02710).

    Raises:
        ValueError: a reward is negative.
    """
    if any(r < 0 for r in rewards):
        raise ValueError("MaxRL needs rewards of 0 or more: it divides by their mean")
    if not has_signal(rewards):
        return [0.0] * len(rewards)
    mean = _mean(rewards)
    return [(r - mean) / mean for r in rewards]


GROUP_ESTIMATORS: Mapping[Estimator, Callable[[Sequence[float]], list[float]]] = {
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "maxrl": maxrl,
}


def gae(
    rewards: Sequence[float], values: Sequence[float], mask: Mask, *, gamma: float, lam: float
) -> tuple[list[float], list[float]]:
    """Generalized advantage estimation (arXiv 1506.02438): ``(advantages, returns)``, each of shape (T,).

    ``δ_t = r_t + γV_{t+1} - V_t`` and ``A_t = δ_t + γλA_{t+1}``, over the tokens with mask 1 alone. Across the others
    (observations) V and A are carried, not stepped, so that a long tool output does not discount what came before it;
    a reward there is ignored: it belongs on the last sampled token.
    """
    _require_length("values and mask", len(rewards), len(values), len(mask))
    advantages = [0.0] * len(rewards)
    advantage = next_value = 0.0
    for t in reversed(range(len(rewards))):
        if mask[t]:
            delta = rewards[t] + gamma * next_value - values[t]
            advantage = delta + gamma * lam * advantage
            next_value = values[t]
        advantages[t] = advantage
    return advantages, [a + v for a, v in zip(advantages, values, strict=True)]


def discounted_returns(rewards: Sequence[float], mask: Mask, *, gamma: float) -> list[float]:
    """``G_t = r_t + γG_{t+1}`` over the tokens with mask 1; carried across the others."""
    _require_length("mask", len(rewards), len(mask))
    returns = [0.0] * len(rewards)
    following = 0.0
    for t in reversed(range(len(rewards))):
        if mask[t]:
            following = rewards[t] + gamma * following
        returns[t] = following
    return returns


def reinforce_plus_plus(
    rewards: Sequence[Sequence[float]],
    masks: Sequence[Mask],
    *,
    gamma: float = 1.0,
    ddof: Literal[0, 1] = 0,
    epsilon: float = 1e-8,
) -> list[list[float]]:
    """REINFORCE++ (arXiv 2501.03262): discounted returns, whitened over the sampled tokens of the *global* batch.

    Args:
        rewards: one sequence of token rewards a rollout (a KL penalty may be in it; the outcome sits on the last
            sampled token). Ragged: nothing is padded.
        masks: 1 on sampled tokens, shaped as ``rewards``.
        gamma: discount a sampled token.
        ddof: 0 divides the variance by the number of tokens, 1 by one less.
        epsilon: added to the variance.

    Returns:
        Advantages shaped as ``rewards``; 0 where the mask is 0.
    """
    _require_length("masks", len(rewards), len(masks))
    returns = [discounted_returns(r, m, gamma=gamma) for r, m in zip(rewards, masks, strict=True)]
    sampled = [g for row, mask in zip(returns, masks, strict=True) for g, m in zip(row, mask, strict=True) if m]
    if not has_signal(sampled):
        return [[0.0] * len(row) for row in returns]
    mean = _mean(sampled)
    scale = 1 / sqrt(fsum((g - mean) ** 2 for g in sampled) / (len(sampled) - ddof) + epsilon)
    return [
        [(g - mean) * scale if m else 0.0 for g, m in zip(row, mask, strict=True)]
        for row, mask in zip(returns, masks, strict=True)
    ]


def group_advantages(rewards: Sequence[float], estimator: Estimator) -> list[float]:
    """One advantage a rollout of a group.

    Raises:
        ValueError: the estimator is unknown or a reward is not a finite number.
    """
    if estimator not in GROUP_ESTIMATORS:
        raise ValueError(f"unknown advantage estimator {estimator!r}; known: {', '.join(GROUP_ESTIMATORS)}")
    if not all(isfinite(r) for r in rewards):
        raise ValueError(f"rewards must be finite numbers, got {list(rewards)}")
    return GROUP_ESTIMATORS[estimator](rewards)


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values) if values else 0.0


def _require_length(what: str, expected: int, *lengths: int) -> None:
    if any(length != expected for length in lengths):
        raise ValueError(f"{what} must have one entry for each of the {expected} rewards, got {lengths}")
