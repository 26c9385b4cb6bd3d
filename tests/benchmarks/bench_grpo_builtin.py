"""GRPO on the built-in task family, from a supervised checkpoint, in the simulator: success before and after.

    python tests/benchmarks/bench_grpo_builtin.py --weights DIRECTORY [--updates 20] [--seed 0]

Everything but the sandbox is the product's: the grammar-masked sampler, token records, batches, the update. Sampled
and greedy success are both given, for greedy hides the noise of the demonstrations. Evaluation tasks are
held out: training never draws them.
"""

import argparse
import random
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import torch

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.events import Generated, TaskEnded
from longstride.contracts.v1.tokens import TokenRecord
from longstride.learning.samples import Candidate, build_batch
from longstride.learning.segment import StoredRecord
from longstride.learning.trajectory import Exchange, TaskIdentity, assemble
from longstride.models.tokenizer import Tokenizer
from longstride.policies.builtin.evaluate import evaluate
from longstride.policies.builtin.family import sample
from longstride.policies.builtin.learner import load_learner
from longstride.policies.builtin.policy import NAME
from longstride.policies.builtin.rollout import Episode, Player
from longstride.policies.sampling import Dice
from longstride.training.learner import CausalLearner
from longstride.training.recipe import Recipe
from longstride.training.trainer import Metrics, Trainer


def records(episode: Episode, version: int, temperature: float) -> Iterator[StoredRecord]:
    """The episode's answers as the model-worker would store them."""
    prefix, read = None, 0
    for start, output in episode.turns:
        record = TokenRecord(
            policy=NAME,
            policy_version=version,
            prefix=prefix,
            prompt_ids=episode.ids[read:start],
            output_ids=output.ids,
            logprobs=output.logprobs,
            mask=output.mask,
            temperature=temperature,
        )
        body = record.model_dump_json().encode()
        digest = sha256(body).hexdigest()
        prefix, read = ArtifactRef(key=f"bench/tokens/{digest}", sha256=digest, size=len(body)), start + len(output.ids)
        yield StoredRecord(prefix, record)


def candidate(episode: Episode, task_id: str, group_id: str, version: int, temperature: float) -> Candidate:
    """The episode as telemetry would hand it to the trainer."""
    stored = list(records(episode, version, temperature))
    exchanges = [
        Exchange(Generated(step=step, text="", tokens=item.ref, policy=NAME, policy_version=version))
        for step, item in enumerate(stored, 1)
    ]
    ended = TaskEnded(outcome="failed", reason="submissions_exhausted")
    task = episode.task.submit(group_id=group_id)
    return Candidate(assemble(TaskIdentity(task_id, "bench"), task, exchanges, ended), episode.reward, stored)


def success(player: Player, tasks: int) -> tuple[float, float]:
    """(sampled, greedy) on held-out tasks."""
    sampled, greedy = (evaluate(player, tasks, temperature).overall.rate for temperature in (1.0, 0.0))
    return sampled, greedy


def update(
    trainer: Trainer, player: Player, version: int, options: argparse.Namespace, generator: torch.Generator
) -> Metrics | None:
    """Roll out, batch and train once; ``None`` when no group held a signal."""
    first = options.seed * 10**6 + version * options.tasks
    tasks = [sample(random.Random(seed)) for seed in range(first, first + options.tasks)]
    rollouts = [task for task in tasks for _ in range(options.siblings)]
    episodes = player.play(rollouts, Dice(1.0, generator=generator))
    candidates = [
        candidate(episode, f"v{version}-{index}", f"v{version}-{index // options.siblings}", version, 1.0)
        for index, episode in enumerate(episodes)
    ]
    batch = build_batch(candidates, policy=NAME, base_version=version)
    return trainer.update(batch) if batch.groups else None


def run(learner: CausalLearner, tokenizer: Tokenizer, options: argparse.Namespace) -> None:
    player = Player(learner.module, tokenizer)
    trainer = Trainer(learner, Recipe(learning_rate=options.learning_rate, seed=options.seed))
    generator = torch.Generator().manual_seed(options.seed)
    before, trained = success(player, options.evaluate), 0.0
    print(f"{'update':>6} {'sampled':>8} {'greedy':>8} {'reward':>7} {'rollouts':>8} {'entropy':>8} {'KL':>8} {'s':>6}")
    print(f"{0:>6} {before[0]:>8.1%} {before[1]:>8.1%}")
    for version in range(options.updates):
        started = time.monotonic()
        metrics = update(trainer, player, version, options, generator)
        trained += time.monotonic() - started
        if metrics is None:
            print(f"{version + 1:>6} no group held a signal")
        elif (version + 1) % options.every == 0 or version + 1 == options.updates:
            after = success(player, options.evaluate)
            print(
                f"{version + 1:>6} {after[0]:>8.1%} {after[1]:>8.1%} {metrics.reward_mean:>7.3f} {metrics.rollouts:>8} "
                f"{metrics.entropy:>8.4f} {metrics.kl_base:>8.5f} {trained:>6.1f}"
            )
    after = success(player, options.evaluate)
    print(f"sampled {before[0]:.1%} → {after[0]:.1%}, greedy {before[1]:.1%} → {after[1]:.1%}, {trained:.0f} s")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True, help="a builtin policy's directory")
    for name, default in (
        ("updates", 20),
        ("tasks", 16),
        ("siblings", 8),
        ("evaluate", 200),
        ("every", 5),
        ("seed", 0),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    chosen = options()
    torch.set_num_threads(chosen.threads)
    run(load_learner(chosen.weights), Tokenizer.load(chosen.weights), chosen)
