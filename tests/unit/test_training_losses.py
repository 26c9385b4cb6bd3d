"""Expected values: the published formulas' reference table; arXiv ids stand beside each loss."""

import pytest
import torch

from longstride.training import losses
from longstride.training.losses import Counts, aggregate

torch.set_num_threads(1)

ADVANTAGES = torch.tensor([[1.0, -1.0, 2.0]])
OLD = torch.tensor([[-1.0, -1.0, -1.0]])
NOW = torch.tensor([[-1.69315, -1.0, -0.59453]])
BEHAVIOUR = torch.tensor([[-0.5, -1.5, -0.8]])
ALL = torch.ones(1, 3, dtype=torch.bool)
L = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
M = torch.tensor([[1, 1, 0], [1, 1, 1]], dtype=torch.bool)


def near(expected, abs=1e-4):
    return pytest.approx(expected, abs=abs)


def test_ppo_terms():
    terms = losses.ppo_terms(NOW, OLD, ADVANTAGES, ALL)
    assert terms[0].tolist() == near([-0.5, 1, -2.4])
    assert terms.mean().item() == near(-0.6333)


def test_decoupled_ppo_with_full_importance_weights():
    weights = losses.importance_weights(OLD, BEHAVIOUR, ALL, cap=None)
    assert weights[0].tolist() == near([0.6065, 1.6487, 0.8187])
    assert (weights * losses.ppo_terms(NOW, OLD, ADVANTAGES, ALL)).mean().item() == near(-0.2065)


def test_gspo_uses_one_ratio_a_sequence():
    ratio = losses.log_ratio(NOW, OLD, ALL).mean().exp()
    assert ratio.item() == near(0.90856)
    terms = losses.gspo_terms(NOW, OLD, ADVANTAGES, ALL, low=0.2, high=0.2)
    assert aggregate(terms, ALL, "sequence_mean", Counts.of(ALL)).item() == near(-0.6057)


def test_gspo_clips_at_its_own_narrow_widths():
    # s = .90856 is below 1 - 3e-4, so A<0 is clipped there and A>0 is not.
    terms = losses.gspo_terms(NOW, OLD, ADVANTAGES, ALL)
    assert terms[0].tolist() == near([-0.90856, 0.9997, -2 * 0.90856])


def test_dual_clip():
    advantages = torch.tensor([[1.0, -1.0, -4.0]])
    logp = torch.tensor([[0.5, 1.0, 10.0]]).log()
    assert losses.ppo_terms(logp, torch.zeros(1, 3), advantages, ALL, dual=3.0)[0].tolist() == near([-0.5, 1, 12])


def test_a_dual_clip_of_one_or_less_is_refused():
    with pytest.raises(ValueError, match="above 1"):
        losses.ppo_terms(NOW, OLD, ADVANTAGES, ALL, dual=1.0)


def test_clip_higher_widens_only_the_upper_side():
    logp = torch.tensor([[2.0, 2.0, 0.5]]).log()
    advantages = torch.tensor([[1.0, -1.0, -1.0]])
    terms = losses.ppo_terms(logp, torch.zeros(1, 3), advantages, ALL, low=0.2, high=0.28)
    assert terms[0].tolist() == near([-1.28, 2.0, 0.8])


def test_cispo_keeps_a_gradient_on_clipped_tokens():
    logp = torch.tensor([[2.0, 1.0, 0.5]]).log().requires_grad_()
    terms = losses.cispo_terms(logp, torch.zeros(1, 3), torch.ones(1, 3), ALL, high=0.28)
    terms.sum().backward()
    # d/dlogp of -sg(min(r, 1.28))·A·logp
    assert logp.grad[0].tolist() == near([-1.28, -1.0, -0.5])


@pytest.mark.parametrize(
    ("how", "options", "expected"),
    [
        ("token_mean", {}, 3.6),
        ("sequence_sum_mean", {}, 9),
        ("sequence_mean", {}, 3.25),
        ("constant", {"constant": 3}, 3.0),
    ],
)
def test_aggregate(how, options, expected):
    assert aggregate(L, M, how, Counts.of(M), **options).item() == near(expected)


def test_the_constant_must_be_given():
    with pytest.raises(ValueError, match="positive constant"):
        aggregate(L, M, "constant", Counts.of(M))


@pytest.mark.parametrize("how", ["token_mean", "sequence_mean", "sequence_sum_mean", "constant"])
def test_shares_of_micro_batches_add_up_to_the_whole(how):
    whole = aggregate(L, M, how, Counts.of(M), constant=7)
    parts = sum(aggregate(L[i : i + 1], M[i : i + 1], how, Counts.of(M), constant=7) for i in range(2))
    assert parts.item() == near(whole.item(), abs=1e-6)


def test_a_rollout_in_segments_weighs_as_much_as_in_one():
    split = torch.tensor([[4.0, 5.0, 0.0], [6.0, 0.0, 0.0], [1.0, 2.0, 0.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 0]], dtype=torch.bool)
    lengths = torch.tensor([3, 3, 2])
    assert aggregate(split, mask, "sequence_mean", Counts(5, 2), lengths=lengths).item() == near(3.25)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        ("k1", [-1, 14, 29]),
        ("k2", [0.5, 98, 420.5]),
        ("k3", [0.7183, 13, 28]),
        ("k3_reweighted", [0.7183, 13, 28]),
    ],
)
def test_kl_values(estimator, expected):
    logp = torch.full((1, 3), -1.0)
    reference = torch.tensor([[0.0, -15.0, -30.0]])
    assert losses.kl_terms(logp, reference, ALL, estimator)[0].tolist() == near(expected)


@pytest.mark.parametrize(
    ("estimator", "direction"), [("k1", "none"), ("k2", "reverse"), ("k3", "forward"), ("k3_reweighted", "reverse")]
)
def test_kl_gradients_on_policy(estimator, direction):
    """The exact expectation over a small vocabulary, against autograd of the KL itself (arXiv 2512.02556)."""
    theta = torch.tensor([0.3, -0.5, 1.1, 0.0], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([0.7, 0.1, -0.4, 0.2], dtype=torch.float64).log_softmax(-1)
    logp = theta.log_softmax(-1)
    terms = losses.kl_terms(logp, reference, torch.ones(4, dtype=torch.bool), estimator)
    (got,) = torch.autograd.grad((logp.detach().exp() * terms).sum(), theta, retain_graph=True)
    exact = {
        "none": 0 * logp.sum(),
        "reverse": (logp.exp() * (logp - reference)).sum(),
        "forward": (reference.exp() * (reference - logp)).sum(),
    }[direction]
    (want,) = torch.autograd.grad(exact, theta)
    torch.testing.assert_close(got, want)


def test_truncated_importance_weights():
    ratio, zero = torch.tensor([[0.5, -0.5, 1.0]]), torch.zeros(1, 3)
    assert losses.importance_weights(ratio, zero, ALL, cap=2)[0].tolist() == near([1.6487, 0.6065, 2])
    sequence = losses.importance_weights(ratio, zero, ALL, cap=None, level="sequence")
    assert sequence[0].tolist() == near([2.7183] * 3)
    assert losses.importance_weights(ratio, zero, ALL, cap=2, level="sequence")[0].tolist() == near([2.0] * 3)


def test_importance_weights_carry_no_gradient():
    old = OLD.clone().requires_grad_()
    assert not losses.importance_weights(old, BEHAVIOUR, ALL).requires_grad


def test_value_loss_takes_the_worse_of_clipped_and_plain():
    values, old, returns = torch.tensor([[2.0, 0.1]]), torch.tensor([[0.0, 0.0]]), torch.tensor([[2.0, 1.0]])
    # V=2 is right but clipped to .2: ½·1.8²; V=.1 is inside the clip: ½·.9²
    assert losses.value_terms(values, old, returns, ALL[:, :2])[0].tolist() == near([1.62, 0.405])


def test_bradley_terry():
    terms = losses.bradley_terry(torch.tensor([1.0, 0.5]), torch.tensor([0.0, 2.0]))
    assert terms.tolist() == near([0.313262, 1.701413], abs=1e-6)
    assert terms.mean().item() == near(1.007337, abs=1e-6)


def test_bradley_terry_margin_and_centre():
    pair = torch.tensor([1.0]), torch.tensor([0.5])
    # margin .5 leaves a difference of 0: log 2; centre adds .1·1.5²
    assert losses.bradley_terry(*pair, margin=0.5, centre=0.1).item() == near(0.693147 + 0.225, abs=1e-5)


LOSSES = {
    "ppo": lambda now, old, a, m: losses.ppo_terms(now, old, a, m, dual=3.0),
    "gspo": losses.gspo_terms,
    "cispo": losses.cispo_terms,
    "k2": lambda now, old, a, m: losses.kl_terms(now, old, m, "k2"),
    "k3": lambda now, old, a, m: losses.kl_terms(now, old, m, "k3"),
    "k3_reweighted": lambda now, old, a, m: losses.kl_terms(now, old, m),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("how", ["token_mean", "sequence_mean", "sequence_sum_mean", "constant"])
def test_what_is_masked_never_reaches_value_or_gradient(loss, how):
    poison = torch.tensor([[-0.5, float("-inf"), 90.0], [float("inf"), float("nan"), -1.0]])
    mask = torch.tensor([[1, 0, 0], [0, 0, 0]], dtype=torch.bool)
    now = poison.clone().requires_grad_()
    terms = LOSSES[loss](now, poison.flip(0).where(~mask, -0.7), -torch.ones(2, 1), mask)
    share = aggregate(terms, mask, how, Counts.of(mask), constant=3)
    share.backward()
    assert torch.isfinite(share)
    assert torch.isfinite(now.grad).all()
    assert (now.grad[~mask] == 0).all()
    assert now.grad[0, 0] != 0


@pytest.mark.parametrize("how", ["token_mean", "sequence_mean", "sequence_sum_mean", "constant"])
def test_nothing_sampled_is_zero(how):
    mask = torch.zeros(2, 3, dtype=torch.bool)
    assert aggregate(L, mask, how, Counts.of(mask), constant=3).item() == 0


def test_a_huge_log_ratio_stays_finite():
    now = torch.tensor([[800.0]], requires_grad=True)
    term = losses.ppo_terms(now, torch.zeros(1, 1), torch.tensor([[-1.0]]), torch.ones(1, 1, dtype=torch.bool))
    term.sum().backward()
    assert torch.isfinite(term).all()
    assert torch.isfinite(now.grad).all()
