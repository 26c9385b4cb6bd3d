"""The reward of a trajectory: what its checks or a person said, or nothing at all.

A failure that the agent did not cause has no reward (``value is None``); it is never a reward of 0.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from longstride.contracts.model import Contract
from longstride.contracts.v1.action import CheckResult
from longstride.contracts.v1.check import Check
from longstride.contracts.v1.commands import RecordFeedback
from longstride.contracts.v1.events import UNREWARDED, EndReason

INTERRUPTED: frozenset[EndReason] = UNREWARDED - {"cancelled", "check_cannot_run"}
"""Ends that broke the episode off from outside. A person may still judge a cancelled episode, or one whose check
could not run, because the agent had its chance there; these carry no reward whoever judges."""


class Component(Contract):
    """One judgement that the reward is made of."""

    name: str
    score: Annotated[float, Field(ge=0, le=1)]
    weight: Annotated[float, Field(ge=0)] = 1.0


class Reward(Contract):
    """One version of a trajectory's reward; the highest version counts."""

    version: Annotated[int, Field(ge=1)] = 1
    value: float | None = None
    """Weighted mean of the components, in [0, 1]; ``None``: no verdict, the trajectory is not trained on."""
    source: Literal["checks", "feedback"] = "checks"
    components: tuple[Component, ...] = ()
    reason: str = ""
    """Why there is no value, or the person's comment."""
    by: str | None = None
    """Who gave the feedback."""


def reward_of(checks: Sequence[Check], results: Sequence[CheckResult], reason: EndReason) -> Reward:
    """The first version of a reward.

    Args:
        checks: those the task came with.
        results: what they said of the last submission; empty when the agent never submitted, which scores 0 on each.
        reason: why the task ended.
    """
    missing = _why_unrewarded(checks, results, reason)
    if missing:
        return Reward(value=None, reason=missing)
    components = _components(checks, results)
    return Reward(value=weighted_mean(components), components=components)


def with_feedback(reward: Reward, feedback: RecordFeedback, reason: EndReason) -> Reward:
    """A newer version: the person's score replaces the checks' value, whose components stay on record.

    An ``INTERRUPTED`` episode keeps ``value=None``; the comment is recorded all the same.
    """
    return Reward(
        version=reward.version + 1,
        value=None if reason in INTERRUPTED else feedback.score,
        source="feedback",
        components=(*(c for c in reward.components if c.name != "feedback"), _feedback_component(feedback)),
        reason=feedback.comment,
        by=feedback.by,
    )


def weighted_mean(components: Sequence[Component]) -> float | None:
    """``Σ w·s / Σ w``; ``None`` without weight."""
    weight = sum(c.weight for c in components)
    return sum(c.weight * c.score for c in components) / weight if weight > 0 else None


def overlong_penalty(length: int, *, limit: int, buffer: int) -> float:
    """DAPO's soft overlong punishment, in [-1, 0], added to a reward (arXiv 2503.14476, equation 13).

    Args:
        length: tokens the policy sampled.
        limit: the most it may sample; beyond it the penalty is -1.
        buffer: the last tokens before ``limit`` over which the penalty grows linearly from 0.
    """
    if not 0 < buffer <= limit:
        raise ValueError(f"buffer must lie in 1…limit, got buffer={buffer}, limit={limit}")
    return max(-1.0, min(0.0, (limit - buffer - length) / buffer))


def _why_unrewarded(checks: Sequence[Check], results: Sequence[CheckResult], reason: EndReason) -> str:
    if reason in UNREWARDED:
        return f"ended by {reason}, which the agent did not cause"
    broken = [result.name for result in results if result.error]
    if broken:
        return f"these checks could not run: {', '.join(broken)}"
    if not checks and not results:
        return "the task has no checks"
    if not any(judgement.weight > 0 for judgement in (results or checks)):
        return "no check has weight"
    return ""


def _components(checks: Sequence[Check], results: Sequence[CheckResult]) -> tuple[Component, ...]:
    if results:
        return tuple(Component(name=r.name, score=r.score, weight=r.weight) for r in results)
    return tuple(Component(name=check.name, score=0.0, weight=check.weight) for check in checks)


def _feedback_component(feedback: RecordFeedback) -> Component:
    return Component(name="feedback", score=feedback.score)
