"""The supervised steps: from random weights to an imitation of the demonstrations."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim import AdamW, Muon, Optimizer

from longstride.agent.action_format import render
from longstride.contracts.v1.context import Message
from longstride.models.tokenizer import Tokenizer
from longstride.models.transformer import Transformer
from longstride.policies.builtin import vocabulary as v
from longstride.policies.builtin.demonstrations import Demonstration, demonstrations
from longstride.policies.builtin.grammar import FORBIDDEN, Grammar
from longstride.policies.builtin.rollout import observed
from longstride.policies.builtin.template import Template
from longstride.policies.sampling import NEVER

OUTSIDE = -1
"""In place of a grammar state where a token is not the policy's own."""
SORTED_AT_ONCE = 8
"""Batches that are drawn together, so that examples of like length can share one."""


@dataclass(frozen=True)
class Supervision:
    """How the supervised steps are made."""

    steps: int = 1100
    batch: int = 16
    """Demonstrations a step."""
    slip: float = 0.2
    """Chance of a mistake at each decision of a demonstration; what reinforcement is to unlearn."""
    learning_rate: float = 6e-3
    """AdamW, for embeddings and norms."""
    matrix_learning_rate: float = 0.02
    """Muon (kellerjordan.github.io/posts/muon), for the matrices of the blocks: a third of the steps that AdamW needs."""
    warmup: int = 20
    decay: float = 0.7
    """The last share of the steps, over which the rates fall to 0."""


class Example(NamedTuple):
    """A demonstration as tokens, both (T,)."""

    ids: Tensor
    states: Tensor
    """The grammar's state before each id of the policy's, ``OUTSIDE`` elsewhere."""


class Loss(NamedTuple):
    """Over the tokens where the grammar leaves a choice."""

    value: Tensor
    accuracy: float


def pretrain(
    model: Transformer,
    tokenizer: Tokenizer,
    seed: int,
    settings: Supervision = Supervision(),
    progress: Callable[[int, Loss], None] = lambda step, loss: None,
) -> None:
    """Train ``model`` in place; equal seeds give equal weights on equal machines."""
    grammar = Grammar(tokenizer)
    optimizers = _optimizers(model, settings)
    model.train()
    for step, batch in enumerate(islice(_batches(tokenizer, grammar, seed, settings), settings.steps)):
        loss = imitation_loss(model, grammar, batch)
        loss.value.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            _set_rate(optimizer, _schedule(step, settings))
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        progress(step, loss)
    model.eval()


def imitation_loss(model: Transformer, grammar: Grammar, batch: Sequence[Example]) -> Loss:
    """Cross-entropy within the grammar."""
    ids = pad_sequence([example.ids for example in batch], batch_first=True)
    states = pad_sequence([example.states for example in batch], batch_first=True, padding_value=OUTSIDE)[:, 1:]
    chosen = (states != OUTSIDE) & (grammar.forced[states.clamp(min=0)] == FORBIDDEN)
    logits = model.logits(model.features(ids[:, :-1])[chosen])
    logits = logits.masked_fill(~grammar.allowed[states[chosen]], NEVER)
    targets = ids[:, 1:][chosen]
    accuracy = float((logits.detach().argmax(-1) == targets).float().mean())
    return Loss(F.cross_entropy(logits, targets), accuracy)


def example(demonstration: Demonstration, tokenizer: Tokenizer, template: Template, grammar: Grammar) -> Example:
    """The tokens that the policy would have seen and written."""
    ids = template.prompt([(Message(role="user", content=demonstration.task.instruction), None)])
    states = [OUTSIDE] * len(ids)
    for action, observation in demonstration.exchanges:
        written = [*tokenizer.encode(render(action)), tokenizer.special(v.END)]
        ids += written
        states += grammar.states(torch.tensor(written)).tolist()
        if observation is not None:
            reply = template.reply(observed(action, observation))
            ids += reply
            states += [OUTSIDE] * len(reply)
    return Example(torch.tensor(ids), torch.tensor(states))


def _batches(tokenizer: Tokenizer, grammar: Grammar, seed: int, settings: Supervision) -> Iterator[list[Example]]:
    rng, template = random.Random(seed), Template(tokenizer)
    source = demonstrations(rng, settings.slip)
    while True:
        drawn = [
            example(demonstration, tokenizer, template, grammar)
            for demonstration in islice(source, settings.batch * SORTED_AT_ONCE)
        ]
        drawn.sort(key=lambda each: len(each.ids))
        batches = [drawn[at : at + settings.batch] for at in range(0, len(drawn), settings.batch)]
        rng.shuffle(batches)
        yield from batches


def _optimizers(model: Transformer, settings: Supervision) -> tuple[Optimizer, ...]:
    matrices = [p for p in model.blocks.parameters() if p.dim() == 2]
    known = set(map(id, matrices))
    rest = [p for p in model.parameters() if id(p) not in known]
    muon = Muon(matrices, lr=settings.matrix_learning_rate, weight_decay=0.01)
    return muon, AdamW(rest, lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.0)


def _schedule(step: int, settings: Supervision) -> float:
    """Share of the full rate: up, level, down to 0."""
    left = (settings.steps - step) / max(1.0, settings.steps * settings.decay)
    return min(1.0, (step + 1) / settings.warmup, left)


def _set_rate(optimizer: Optimizer, share: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = group.setdefault("full_lr", group["lr"]) * share
