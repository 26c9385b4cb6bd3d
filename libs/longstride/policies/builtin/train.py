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
    version: int
    seed: int
    parameters: int
    directory: Path
    seconds: float
    """Of training alone, on the clock."""
    cpu_seconds: float
    """Of training alone, of all threads: what does not depend on what else the machine does."""
    evaluations: tuple[Evaluation, ...]
    """Greedy, then sampled at temperature 1; none when nothing was measured."""


def train_builtin(
    seed: int,
    out: Path,
    plan: TrainingPlan = TrainingPlan(),
    *,
    threads: int = 1,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[StageReport, ...]:
    """Train both versions and write them to ``out/v0`` (supervised) and ``out/v1`` (then reinforced).

    Each directory holds ``config.json``, ``model.safetensors`` (fp16), ``tokenizer.json``, ``MODEL_CARD.md`` and
    ``training.json``. Equal seeds give equal weights on equal machines with equal ``threads``.

    Args:
        seed: decides weights, tasks and samples.
        out: made if missing; files of an earlier run are replaced.
        plan: sizes and steps.
        threads: of torch; more than one is slower on a busy machine.
        say: told of the progress, a line at a time.
    """
    torch.set_num_threads(threads)
    return _Workshop(seed, out, plan, say).run()


class _Workshop:
    """One run: the model, and what is needed to train and to measure it."""

    def __init__(self, seed: int, out: Path, plan: TrainingPlan, say: Callable[[str], None]) -> None:
        self._seed, self._out, self._plan, self._say = seed, out, plan, say
        self._tokenizer = vocabulary.tokenizer()
        self._model = Transformer(plan.config(self._tokenizer.vocab_size), seed=seed)

    def run(self) -> tuple[StageReport, ...]:
        self._say(f"{self._model.parameter_count:,} parameters, {self._tokenizer.vocab_size} tokens")
        return self._stage("supervised", 0, self._supervise), self._stage("reinforced", 1, self._reinforce)

    def _supervise(self) -> None:
        pretrain(self._model, self._tokenizer, self._seed, self._plan.supervision, self._tell_loss)

    def _reinforce(self) -> None:
        improve(self._model, self._tokenizer, self._seed, self._plan.reinforcement, self._tell_reward)

    def _stage(self, stage: Stage, version: int, train: Callable[[], None]) -> StageReport:
        clock, cpu = time.monotonic(), time.process_time()
        train()
        seconds, cpu_seconds = time.monotonic() - clock, time.process_time() - cpu
        # What ships is fp16: it is measured, and trained further, as it ships.
        _round_to_half(self._model)
        report = StageReport(
            stage=stage,
            version=version,
            seed=self._seed,
            parameters=self._model.parameter_count,
            directory=self._out / f"v{version}",
            seconds=round(seconds, 1),
            cpu_seconds=round(cpu_seconds, 1),
            evaluations=self._measure(),
        )
        self._write(report)
        return report

    def _measure(self) -> tuple[Evaluation, ...]:
        if not self._plan.evaluation_tasks:
            return ()
        player = Player(self._model, self._tokenizer)
        return tuple(evaluate(player, self._plan.evaluation_tasks, temperature) for temperature in (0.0, 1.0))

    def _write(self, report: StageReport) -> None:
        self._model.save(report.directory, dtype=torch.float16)
        self._tokenizer.save(report.directory)
        content = {
            "version": 1,
            **{name: getattr(report, name) for name in ("stage", "seed", "parameters", "seconds", "cpu_seconds")},
            "plan": _plain(self._plan),
            "evaluations": [evaluation.as_json() for evaluation in report.evaluations],
        }
        (report.directory / "training.json").write_text(json.dumps(content, indent=1) + "\n")
        write_card(report, self._plan)
        rates = ", ".join(f"{e.overall.rate:.1%} at temperature {e.temperature:g}" for e in report.evaluations)
        spent = f"{report.seconds:.0f} s, {report.cpu_seconds:.0f} s of CPU"
        self._say(f"{report.stage} in {spent}; right: {rates or 'not measured'}; written to {report.directory}")

    def _tell_loss(self, step: int, loss: Loss) -> None:
        steps = self._plan.supervision.steps
        if step % 50 == 0 or step == steps - 1:
            value, accuracy = loss.value.item(), loss.accuracy
            self._say(f"supervised step {step + 1} of {steps}: loss {value:.3f}, {accuracy:.1%} of tokens right")

    def _tell_reward(self, step: int, made: Improvement) -> None:
        groups = made.metrics.groups if made.metrics else 0
        steps = self._plan.reinforcement.steps
        self._say(f"GRPO step {step + 1} of {steps}: mean reward {made.reward:.3f}, {groups} groups with a signal")


def _plain(plan: TrainingPlan) -> dict[str, object]:
    recipe = plan.reinforcement.recipe.model_dump(mode="json")
    fields = asdict(plan)
    return {**fields, "reinforcement": {**fields["reinforcement"], "recipe": recipe}}


@torch.no_grad()
def _round_to_half(model: Transformer) -> None:
    for parameter in model.parameters():
        parameter.copy_(parameter.half().float())


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
