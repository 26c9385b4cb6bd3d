import pytest

from longstride.contracts.v1.action import CheckResult
from longstride.contracts.v1.check import AnswerCheck
from longstride.contracts.v1.commands import RecordFeedback
from longstride.contracts.v1.events import UNREWARDED
from longstride.learning.reward import overlong_penalty, reward_of, with_feedback

CHECKS = (AnswerCheck(name="total", number=3, weight=3), AnswerCheck(name="unit", equals="kg", weight=1))


def results(*scores: float, error: str | None = None) -> tuple[CheckResult, ...]:
    return tuple(
        CheckResult(name=check.name, passed=score == 1, score=score, weight=check.weight, error=error)
        for check, score in zip(CHECKS, scores, strict=True)
    )


def test_reward_is_the_weighted_mean_of_the_scores():
    reward = reward_of(CHECKS, results(1.0, 0.5), "submissions_exhausted")
    assert reward.value == pytest.approx((3 * 1.0 + 1 * 0.5) / 4)
    assert [c.name for c in reward.components] == ["total", "unit"]


@pytest.mark.parametrize("reason", sorted(UNREWARDED))
def test_what_the_agent_did_not_cause_has_no_reward(reason):
    reward = reward_of(CHECKS, results(0.0, 0.0), reason)
    assert reward.value is None
    assert reason in reward.reason


@pytest.mark.parametrize("reason", ["steps_exhausted", "stuck", "format_errors_exhausted", "wall_clock_exhausted"])
def test_an_agent_that_never_submits_scores_zero(reason):
    assert reward_of(CHECKS, (), reason).value == 0.0


def test_a_check_that_could_not_run_gives_no_verdict():
    reward = reward_of(CHECKS, results(1.0, 0.0, error="no such shell"), "submissions_exhausted")
    assert reward.value is None
    assert "total, unit" in reward.reason


def test_without_checks_there_is_no_reward():
    assert reward_of((), (), "submitted").value is None


def test_checks_without_weight_give_no_reward():
    checks = (AnswerCheck(equals="x", weight=0),)
    assert reward_of(checks, (), "stuck").value is None


def test_feedback_is_a_newer_version_that_keeps_the_checks_on_record():
    first = reward_of(CHECKS, results(1.0, 1.0), "checks_passed")
    second = with_feedback(first, RecordFeedback(score=0.2, comment="wrong tone", by="ann"), "checks_passed")
    third = with_feedback(second, RecordFeedback(score=0.4, by="ben"), "checks_passed")
    assert (second.version, second.value, second.source, second.by) == (2, 0.2, "feedback", "ann")
    assert (third.version, third.value) == (3, 0.4)
    assert [c.name for c in third.components] == ["total", "unit", "feedback"]


@pytest.mark.parametrize(
    ("reason", "value"),
    [("infrastructure", None), ("policy_unavailable", None), ("cancelled", 0.0), ("check_cannot_run", 0.0)],
)
def test_a_person_can_judge_only_what_the_agent_had_a_chance_at(reason, value):
    first = reward_of(CHECKS, (), reason)
    assert with_feedback(first, RecordFeedback(score=0.0), reason).value == value


@pytest.mark.parametrize(("length", "penalty"), [(0, 0), (80, 0), (90, -0.5), (100, -1), (500, -1)])
def test_overlong_penalty(length, penalty):
    assert overlong_penalty(length, limit=100, buffer=20) == pytest.approx(penalty)


def test_overlong_penalty_wants_a_buffer_within_the_limit():
    with pytest.raises(ValueError, match="buffer"):
        overlong_penalty(1, limit=10, buffer=11)
