import json
import random
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from longstride.models.transformer import Transformer
from longstride.policies.builtin import vocabulary as v
from longstride.policies.builtin.demonstrations import Expert
from longstride.policies.builtin.evaluate import held_out
from longstride.policies.builtin.grammar import FORBIDDEN, Grammar
from longstride.policies.builtin.improve import Reinforcement
from longstride.policies.builtin.policy import BuiltinPolicy
from longstride.policies.builtin.pretrain import OUTSIDE, Supervision, example, imitation_loss
from longstride.policies.builtin.template import Template
from longstride.policies.builtin.train import TrainingPlan, train_builtin

torch.set_num_threads(1)

TINY = TrainingPlan(
    width=32,
    hidden=32,
    supervision=Supervision(steps=6, batch=4),
    reinforcement=Reinforcement(steps=1, tasks=2, siblings=2),
    evaluation_tasks=2,
)


def weights(directory):
    return Transformer.load(directory).state_dict()


def test_a_seed_makes_the_same_weights_again(tmp_path):
    lines: list[str] = []
    train_builtin(4, tmp_path / "one", TINY, say=lines.append)
    reports = train_builtin(4, tmp_path / "two", TINY)
    train_builtin(5, tmp_path / "other", TINY)
    for version in ("v0", "v1"):
        first, again, other = (weights(tmp_path / run / version) for run in ("one", "two", "other"))
        assert all(torch.equal(first[name], again[name]) for name in first)
        assert not all(torch.equal(first[name], other[name]) for name in first)
        assert BuiltinPolicy.load(tmp_path / "one" / version, 3).version == 3
    assert [(report.stage, report.version) for report in reports] == [("supervised", 0), ("reinforced", 1)]
    assert lines[0].endswith("tokens")
    written = json.loads((tmp_path / "one" / "v1" / "training.json").read_text())
    assert (written["stage"], written["seed"], written["plan"]["supervision"]["steps"]) == ("reinforced", 4, 6)
    assert [e["temperature"] for e in written["evaluations"]] == [0.0, 1.0]
    assert "| **all** | " in (tmp_path / "one" / "v1" / "MODEL_CARD.md").read_text()


def test_an_example_marks_what_the_policy_writes():
    tokenizer = v.tokenizer()
    template, grammar = Template(tokenizer), Grammar(tokenizer)
    task = held_out(1)[0]
    demonstration = Expert(task, random.Random(0)).demonstrate()
    ids, states = example(demonstration, tokenizer, template, grammar)
    own = [int(token) for token, state in zip(ids, states, strict=True) if state != OUTSIDE]
    assert own.count(tokenizer.special(v.END)) == len(demonstration.exchanges)
    assert tokenizer.decode(own).count('{"t') == len(demonstration.exchanges)
    assert tokenizer.decode(ids.tolist()).startswith(task.instruction)


def test_the_loss_counts_choices_within_the_grammar_alone():
    """With all logits equal it is the mean of log(number of allowed ids) over the choices."""
    tokenizer = v.tokenizer()
    template, grammar = Template(tokenizer), Grammar(tokenizer)
    demonstration = Expert(held_out(1)[0], random.Random(0)).demonstrate()
    batch = [example(demonstration, tokenizer, template, grammar)]
    model = Transformer(TINY.config(tokenizer.vocab_size))
    with torch.no_grad():
        for table in model.embeddings:
            table.weight.zero_()
    states = batch[0].states[batch[0].states != OUTSIDE]
    choices = states[grammar.forced[states] == FORBIDDEN]
    expected = grammar.allowed[choices].sum(1).double().log().mean()
    assert float(imitation_loss(model, grammar, batch).value.detach()) == pytest.approx(float(expected), rel=1e-5)


def test_a_few_steps_of_supervision_lower_the_loss(tmp_path):
    said: list[str] = []
    supervision = Supervision(steps=60, batch=8, slip=0.0)
    train_builtin(1, tmp_path, replace(TINY, supervision=supervision, evaluation_tasks=0), say=said.append)
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in said if "loss" in line]
    assert losses[-1] < 0.6 * losses[0]


def test_the_command_refuses_nonsense():
    command = [sys.executable, "-m", "longstride.policies.builtin.train", "--grpo-steps", "none"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert "'none' must be a whole number from 1" in done.stderr
