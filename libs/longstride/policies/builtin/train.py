"""``longstride policy train-builtin``: from nothing to the weights that ship, by a seed."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch

from longstride.models.config import TransformerConfig
from longstride.models.tokenizer import Tokenizer
from longstride.models.transformer import Transformer
from longstride.policies.builtin import vocabulary
from longstride.policies.builtin.card import write_card
from longstride.policies.builtin.evaluate import Evaluation, evaluate
from longstride.policies.builtin.improve import Improvement, Reinforcement, improve
from longstride.policies.builtin.pretrain import Loss, Supervision, pretrain
from longstride.policies.builtin.rollout import Player

Stage = Literal["supervised", "reinforced"]


@dataclass(frozen=True)
class TrainingPlan:
    """Everything that, beside the seed, decides the weights."""

    width: int = 128
    layers: int = 2
    heads: int = 4
    hidden: int = 384
    taps: int = 4
    context: int = 2048
    supervision: Supervision = field(default_factory=Supervision)
    reinforcement: Reinforcement = field(default_factory=Reinforcement)
    evaluation_tasks: int = 300
    """Held-out tasks for the numbers of the model card; 0 measures nothing."""

    def config(self, vocab_size: int) -> TransformerConfig:
        """The model's shape."""
        return TransformerConfig(
            vocab_size=vocab_size,
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            kv_heads=self.heads,
            hidden=self.hidden,
            taps=self.taps,
            context=self.context,
        )


@dataclass(frozen=True)
class StageReport:
    """One of the two versions."""

    stage: Stage
    directory: Path
    seconds: float
    """Of training alone."""
    evaluations: tuple[Evaluation, ...]
    """Greedy, then sampled at temperature 1."""


@dataclass(frozen=True)
class TrainingReport:
    """What ``train_builtin`` made."""

    seed: int
    parameters: int
    stages: tuple[StageReport, ...]


def train_builtin(
    seed: int,
    out: Path,
    plan: TrainingPlan = TrainingPlan(),
    *,
    threads: int = 1,
    say: Callable[[str], None] = lambda line: None,
) -> TrainingReport:
    """Train both versions and write them to ``out/v0`` (supervised) and ``out/v1`` (then reinforced).

    Each directory holds ``config.json``, ``model.safetensors`` (fp16), ``tokenizer.json``, ``MODEL_CARD.md`` and
    ``training.json``. Equal seeds give equal files on equal machines with equal ``threads``.

    Args:
        seed: decides weights, tasks and samples.
        out: made if missing; files of an earlier run are replaced.
        plan: sizes and steps.
        threads: of torch; more than one is slower on a busy machine.
        say: told of the progress, a line at a time.
    """
    torch.set_num_threads(threads)
    tokenizer = vocabulary.tokenizer()
    model = Transformer(plan.config(tokenizer.vocab_size), seed=seed)
    say(f"{model.parameter_count:,} parameters, {tokenizer.vocab_size} tokens")
    stages = []
    for number, (stage, run) in enumerate(_stages(plan, seed, tokenizer, say)):
        started = time.monotonic()
        run(model)
        seconds = time.monotonic() - started
        # What ships is fp16: measured, and trained further, as it ships.
        _round_to_half(model)
        stages.append(_finish(model, tokenizer, plan, stage, out / f"v{number}", seconds, say))
        write_card(stages[-1].directory, number, seed, model.parameter_count, plan, stages[-1])
    return TrainingReport(seed, model.parameter_count, tuple(stages))


def _stages(
    plan: TrainingPlan, seed: int, tokenizer: Tokenizer, say: Callable[[str], None]
) -> tuple[tuple[Stage, Callable[[Transformer], None]], ...]:
    def supervised(model: Transformer) -> None:
        pretrain(model, tokenizer, seed, plan.supervision, lambda step, loss: _tell_loss(step, loss, plan, say))

    def reinforced(model: Transformer) -> None:
        improve(model, tokenizer, seed, plan.reinforcement, lambda step, made: _tell_reward(step, made, plan, say))

    return ("supervised", supervised), ("reinforced", reinforced)


def _finish(
    model: Transformer,
    tokenizer: Tokenizer,
    plan: TrainingPlan,
    stage: Stage,
    directory: Path,
    seconds: float,
    say: Callable[[str], None],
) -> StageReport:
    model.save(directory, dtype=torch.float16)
    tokenizer.save(directory)
    evaluations: tuple[Evaluation, ...] = ()
    if plan.evaluation_tasks:
        player = Player(model, tokenizer)
        evaluations = tuple(evaluate(player, plan.evaluation_tasks, temperature) for temperature in (0.0, 1.0))
    rates = ", ".join(f"{e.overall.rate:.1%} at temperature {e.temperature:g}" for e in evaluations)
    say(f"{stage}: {seconds:.0f} s of training; right: {rates or 'not measured'}")
    measured = [evaluation.as_json() for evaluation in evaluations]
    content = {
        "version": 1,
        "stage": stage,
        "seconds": round(seconds, 1),
        "plan": _plain(plan),
        "evaluations": measured,
    }
    (directory / "training.json").write_text(json.dumps(content, indent=1) + "\n")
    return StageReport(stage, directory, seconds, evaluations)


def _plain(plan: TrainingPlan) -> dict[str, object]:
    recipe = plan.reinforcement.recipe.model_dump(mode="json")
    fields = asdict(plan)
    return {**fields, "reinforcement": {**fields["reinforcement"], "recipe": recipe}}


@torch.no_grad()
def _round_to_half(model: Transformer) -> None:
    for parameter in model.parameters():
        parameter.copy_(parameter.half().float())


def _tell_loss(step: int, loss: Loss, plan: TrainingPlan, say: Callable[[str], None]) -> None:
    if step % 50 == 0 or step == plan.supervision.steps - 1:
        say(
            f"supervised step {step}/{plan.supervision.steps}: loss {loss.value.item():.3f}, {loss.accuracy:.1%} of tokens"
        )


def _tell_reward(step: int, made: Improvement, plan: TrainingPlan, say: Callable[[str], None]) -> None:
    groups = made.metrics.groups if made.metrics else 0
    say(f"GRPO step {step}/{plan.reinforcement.steps}: reward {made.reward:.3f}, {groups} groups with signal")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="longstride policy train-builtin --", description=__doc__)
    plan = TrainingPlan()
    parser.add_argument("--seed", type=int, default=0, help="decides weights, tasks and samples")
    parser.add_argument("--out", type=Path, default=Path("builtin"), help="gets the directories v0 and v1")
    parser.add_argument("--supervised-steps", type=_count, default=plan.supervision.steps)
    parser.add_argument("--grpo-steps", type=_count, default=plan.reinforcement.steps)
    parser.add_argument("--slip", type=float, default=plan.supervision.slip, help="share of mistakes in demonstrations")
    parser.add_argument("--layers", type=_count, default=plan.layers)
    parser.add_argument("--width", type=_count, default=plan.width)
    parser.add_argument("--evaluation-tasks", type=int, default=plan.evaluation_tasks)
    parser.add_argument("--threads", type=_count, default=1, help="of torch; more are slower on a busy machine")
    chosen = parser.parse_args()
    plan = replace(
        plan,
        layers=chosen.layers,
        width=chosen.width,
        supervision=replace(plan.supervision, steps=chosen.supervised_steps, slip=chosen.slip),
        reinforcement=replace(plan.reinforcement, steps=chosen.grpo_steps),
        evaluation_tasks=chosen.evaluation_tasks,
    )
    try:
        train_builtin(chosen.seed, chosen.out, plan, threads=chosen.threads, say=_print)
    except (ValueError, OSError) as error:
        parser.exit(1, f"{error}\n")


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1")
    return int(text)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
