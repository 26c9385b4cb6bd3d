"""Expected values: the reference table of published formulas (arXiv ids beside each estimator)."""

import pytest

from longstride.learning import advantage


@pytest.mark.parametrize(
    ("gamma", "lam", "returns"),
    [(1, 1, [6, 5, 3]), (0.5, 1, [2.75, 3.5, 3]), (1, 0.5, [3.625, 4.25, 3])],
)
def test_gae_returns(gamma, lam, returns):
    _, got = advantage.gae([1, 2, 3], [0.5, 1, 1.5], [1, 1, 1], gamma=gamma, lam=lam)
    assert got == pytest.approx(returns)


def test_gae_carries_value_and_advantage_across_observations():
    advantages, returns = advantage.gae([1, 2, 3], [0.5, 1, 1.5], [1, 0, 1], gamma=1, lam=1)
    assert advantages == pytest.approx([3.5, 1.5, 1.5])
    assert returns == pytest.approx([4, 2.5, 3])


def test_gae_is_not_discounted_by_a_long_observation():
    short, _ = advantage.gae([0, 0, 1], [0.1, 0, 0.2], [1, 0, 1], gamma=0.9, lam=0.8)
    long, _ = advantage.gae([0] * 51 + [1], [0.1] + [0] * 50 + [0.2], [1] + [0] * 50 + [1], gamma=0.9, lam=0.8)
    assert long[0] == pytest.approx(short[0])


def test_gae_wants_equal_lengths():
    with pytest.raises(ValueError, match="one entry for each of the 2 rewards"):
        advantage.gae([1, 2], [1], [1, 1], gamma=1, lam=1)


@pytest.mark.parametrize(("group", "expected"), [((6, 3), [3, -3]), ((9, 12), [-3, 3]), ((1,), [0])])
def test_rloo(group, expected):
    assert advantage.rloo(group) == pytest.approx(expected)


@pytest.mark.parametrize(("group", "expected"), [((6, 3), [1.5, -1.5]), ((9, 12), [-1.5, 1.5])])
def test_dr_grpo(group, expected):
    assert advantage.dr_grpo(group) == pytest.approx(expected)


def test_grpo_with_sample_standard_deviation():
    assert advantage.grpo([1, 0, 0, 0], ddof=1, epsilon=1e-6) == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)


def test_grpo_with_population_standard_deviation():
    # std = sqrt(3)/4, so (1 - 1/4) / std = sqrt(3)
    assert advantage.grpo([1, 0, 0, 0], ddof=0)[0] == pytest.approx(3**0.5, abs=1e-4)


def test_maxrl():
    assert advantage.maxrl([1, 0, 0, 0]) == pytest.approx([3, -1, -1, -1])


def test_maxrl_refuses_negative_rewards():
    with pytest.raises(ValueError, match="0 or more"):
        advantage.maxrl([1, -1])


@pytest.mark.parametrize("estimator", advantage.GROUP_ESTIMATORS)
@pytest.mark.parametrize("rewards", [[], [1.0], [0.0, 0.0], [1.0, 1.0, 1.0], [0.3, 0.1 + 0.2]])
def test_no_signal_is_zero(estimator, rewards):
    assert advantage.group_advantages(rewards, estimator) == [0.0] * len(rewards)


def test_unknown_estimator_is_named():
    with pytest.raises(ValueError, match=r"'ppo'.*grpo"):
        advantage.group_advantages([1, 0], "ppo")


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_rewards_must_be_finite(bad):
    with pytest.raises(ValueError, match="finite"):
        advantage.group_advantages([1.0, bad], "grpo")


def test_reinforce_plus_plus_whitens_over_the_global_batch():
    # Discounted by hand (γ = ½): row 1 → [1, -, 2], row 2 → [0, 0]; mean 3/4, population variance 11/16.
    rewards, masks = [[0, 9, 2], [0, 0]], [[1, 0, 1], [1, 1]]
    first, second = advantage.reinforce_plus_plus(rewards, masks, gamma=0.5)
    std = (11 / 16) ** 0.5
    assert first == pytest.approx([0.25 / std, 0, 1.25 / std], abs=1e-6)
    assert second == pytest.approx([-0.75 / std] * 2, abs=1e-6)


def test_reinforce_plus_plus_without_signal_is_zero():
    assert advantage.reinforce_plus_plus([[0, 1], [1]], [[1, 1], [1]], gamma=1) == [[0, 0], [0]]


def test_discounted_returns_are_carried_across_observations():
    assert advantage.discounted_returns([0, 7, 4], [1, 0, 1], gamma=0.5) == [2, 4, 4]
