"""The builtin policy's weights, to be trained further."""

from pathlib import Path

from longstride.models.tokenizer import Tokenizer
from longstride.models.transformer import Transformer
from longstride.policies.builtin.grammar import Grammar
from longstride.training.learner import CausalLearner


def load_learner(directory: Path | str) -> CausalLearner:
    """The weights of a directory, scored within the grammar that they are sampled within.

    Raises:
        ValueError: a file is missing or broken; the text names it.
    """
    model, grammar = Transformer.load(directory), Grammar(Tokenizer.load(directory))
    return CausalLearner(model, model.save, grammar.support)
