"""The token record of a model call: the exact sample that training may use."""

from typing import Literal

from pydantic import model_validator

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.model import Contract


class TokenRecord(Contract):
    """Ids and log-probabilities as they were generated. Lengths: ``prompt_ids`` P, the others N."""

    version: Literal[1] = 1
    policy: str
    policy_version: int
    prefix: ArtifactRef | None = None
    """The previous call's record: its prompt and output are the start of this prompt. ``None``: the prompt starts here."""
    prompt_ids: tuple[int, ...]
    """The prompt's ids after ``prefix``, shape (P,), so that a task's records together grow with its steps, not their square."""
    output_ids: tuple[int, ...]
    """The sampled ids, shape (N,), the end token included when it was sampled."""
    logprobs: tuple[float, ...]
    """Natural-log probability of each sampled id *after* temperature, top-p and grammar masks: those of the sampling distribution. Shape (N,)."""
    mask: tuple[int, ...]
    """1 where the policy chose the id, 0 where it was forced. Shape (N,)."""
    temperature: float
    top_p: float = 1.0

    @model_validator(mode="after")
    def _same_length(self) -> "TokenRecord":
        if not len(self.output_ids) == len(self.logprobs) == len(self.mask):
            raise ValueError("output_ids, logprobs and mask must have one entry a generated token")
        return self
