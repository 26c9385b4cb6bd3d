"""The builtin policy: a directory of weights that answers conversations."""

import time
from collections.abc import Sequence
from pathlib import Path

from longstride.contracts.v1.action import ToolSpec, Usage
from longstride.contracts.v1.commands import Sampling
from longstride.contracts.v1.tokens import TokenRecord
from longstride.learning.segment import Segment
from longstride.models.tokenizer import Tokenizer
from longstride.models.transformer import Transformer
from longstride.policies.base import ContextOverflow, Generation, PolicyTimeout, Turn
from longstride.policies.builtin.decode import DeadlinePassed, Output, decode, score
from longstride.policies.builtin.grammar import Grammar
from longstride.policies.builtin.template import Template
from longstride.policies.sampling import Dice

NAME = "builtin"
LEAST_ROOM = 64
"""Ids that must be left for an answer; with less the context is too long."""


class BuiltinPolicy:
    """One version of the weights. Calls share them and nothing else, so threads do not disturb each other."""

    name = NAME

    def __init__(self, model: Transformer, tokenizer: Tokenizer, version: int) -> None:
        if model.config.vocab_size != tokenizer.vocab_size:
            raise ValueError(
                f"the model reads {model.config.vocab_size} ids, the tokenizer makes {tokenizer.vocab_size}"
            )
        self.model, self.tokenizer, self.version = model.eval(), tokenizer, version
        self.grammar, self.template = Grammar(tokenizer), Template(tokenizer)
        self.context_window = model.config.context

    @classmethod
    def load(cls, directory: Path | str, version: int) -> "BuiltinPolicy":
        """Read a directory of ``config.json``, ``model.safetensors`` and ``tokenizer.json``.

        Raises:
            ValueError: a file is missing or broken; the text names it.
        """
        return cls(Transformer.load(directory), Tokenizer.load(directory), version)

    def generate(
        self, turns: Sequence[Turn], tools: Sequence[ToolSpec], sampling: Sampling, timeout_s: float
    ) -> Generation:
        """See ``Policy.generate``. The tools are those it was trained on, whatever ``tools`` says; see the model card."""
        started = time.monotonic()
        prompt = self.prompt(turns)
        try:
            (output,) = decode(
                self.model,
                self.grammar,
                [prompt],
                Dice.of(sampling, len(turns)),
                sampling.max_tokens,
                started + timeout_s,
            )
        except DeadlinePassed as error:
            raise PolicyTimeout(f"{self.name}@{self.version} did not end its answer within {timeout_s:g} s") from error
        return Generation(
            text=self.tokenizer.decode(output.ids),
            policy=self.name,
            policy_version=self.version,
            record=self.record(prompt, output, sampling),
            usage=Usage(
                input_tokens=len(prompt), output_tokens=len(output.ids), wall_ms=(time.monotonic() - started) * 1000
            ),
            finish_reason="stop" if output.complete else "length",
        )

    def score(self, segment: Segment) -> list[float]:
        """What ``generate`` would record if it sampled the segment's turns again, by its own path: each turn's prompt is read
        into a fresh cache, and its output id by id within the grammar.

        Returns:
            (T,) log-probabilities at each turn's temperature; 0 outside turns and for forced ids.

        Raises:
            ValueError: an output could not have been sampled where it stands; the text says why.
        """
        if not all(0 <= token < self.tokenizer.vocab_size for token in segment.ids):
            raise ValueError(f"there are ids outside the {self.tokenizer.vocab_size} that {self.name} reads")
        scored = [0.0] * len(segment.ids)
        for turn in segment.turns:
            prompt, output = segment.ids[: turn.start], segment.ids[turn.start : turn.end]
            scored[turn.start : turn.end] = score(self.model, self.grammar, prompt, output, turn.temperature)
        return scored

    def prompt(self, turns: Sequence[Turn]) -> list[int]:
        """The conversation as ids.

        Raises:
            ContextOverflow: they leave too little of the window.
        """
        ids = self.template.prompt([(turn.message, self._generated(turn)) for turn in turns])
        if len(ids) + LEAST_ROOM > self.context_window:
            raise ContextOverflow(
                f"the conversation has {len(ids)} tokens; {self.name} reads {self.context_window - LEAST_ROOM}"
            )
        return ids

    def record(self, prompt: Sequence[int], output: Output, sampling: Sampling) -> TokenRecord:
        """The exact sample."""
        return TokenRecord(
            policy=self.name,
            policy_version=self.version,
            prompt_ids=tuple(prompt),
            output_ids=tuple(output.ids),
            logprobs=tuple(output.logprobs),
            mask=tuple(output.mask),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
        )

    def _generated(self, turn: Turn) -> Sequence[int] | None:
        """The ids that this policy generated; another's answer is read as text."""
        return turn.record.output_ids if turn.record and turn.record.policy == self.name else None
