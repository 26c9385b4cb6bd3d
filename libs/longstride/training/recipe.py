"""How an update is made: everything that, beside batch and base version, decides the new weights."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from longstride.contracts.model import Contract
from longstride.training.losses import Aggregation, Divergence, Level

Loss = Literal["ppo", "gspo", "cispo"]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]

CLIPS: Mapping[Loss, tuple[float, float]] = {"ppo": (0.2, 0.28), "gspo": (3e-4, 4e-4), "cispo": (1.0, 0.28)}
"""(low, high) where the recipe names none: DAPO's, GSPO's and CISPO's papers."""


class Recipe(Contract):
    """Kept in the manifest of each version that it made."""

    loss: Loss = "ppo"
    aggregation: Aggregation = "token_mean"
    constant: Positive | None = None
    """For the aggregation ``constant``: the most tokens a rollout may sample."""
    clip: tuple[Annotated[float, Field(gt=0, le=1)], Positive] | None = None
    """(low, high): ratios are clipped to ``[1 - low, 1 + high]``; ``None``: the widths of the loss in ``CLIPS``."""
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    """For ``ppo``: bounds the loss of negative advantages."""
    importance_cap: Positive = 2.0
    """Truncates ``π_old/μ``, the base version against the one that sampled."""
    importance_level: Level = "token"
    kl_weight: Annotated[float, Field(ge=0)] = 0.0
    """Weight of a KL penalty towards the base version; 0 as in DAPO."""
    kl: Divergence = "k3_reweighted"
    learning_rate: Positive = 3e-4
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    epsilon: Positive = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    max_grad_norm: Positive = 1.0
    epochs: Count = 1
    """Passes over the batch."""
    minibatches: Count = 1
    """Optimizer steps a pass; rollouts are dealt out at random, by ``seed``."""
    micro_batch_tokens: Count = 8192
    """Padded tokens that are scored at once: bounds memory, does not change the update."""
    seed: int = 0
    max_gap_mean: Positive = 0.02
    """Mean |trainer - engine| log-probability, over tokens that the base version sampled, above which nothing is
    trained. bf16 rollouts are measured at 0.006, fp32 ones at 1e-6."""
    max_gap: Positive = 1.0
    """The largest such difference of a single token."""
    max_stale_kl: Positive = 0.5
    """KL, in nats a token, from the versions that sampled stale tokens to the base, above which nothing is trained."""

    @model_validator(mode="after")
    def _complete(self) -> "Recipe":
        if self.aggregation == "constant" and self.constant is None:
            raise ValueError("the aggregation 'constant' needs a constant: the most tokens a rollout may sample")
        return self

    @property
    def clip_widths(self) -> tuple[float, float]:
        """(low, high) as used."""
        return self.clip or CLIPS[self.loss]
