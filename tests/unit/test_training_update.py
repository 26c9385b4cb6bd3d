"""One update, end to end, on a game small enough to learn in seconds.

The game: the policy sees a symbol and must repeat it; then a tool shows another, which it must repeat too. Each is half
of the reward. A grammar allows symbols only, and forces the end mark. Untrained, 1 in 8 is right.
"""

import random
from datetime import UTC, datetime
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.action import Action
from longstride.contracts.v1.commands import SubmitTask, UpdatePolicy
from longstride.contracts.v1.events import Generated, TaskEnded
from longstride.contracts.v1.tokens import TokenRecord
from longstride.learning.samples import Batch, Candidate, build_batch
from longstride.learning.segment import Segment, StoredRecord
from longstride.learning.trajectory import Exchange, TaskIdentity, assemble
from longstride.models.config import TransformerConfig
from longstride.models.transformer import Transformer
from longstride.storage.errors import ArtifactMissing
from longstride.storage.memory import MemoryArtifacts
from longstride.training.errors import UpdateRefused, WeightsRefused
from longstride.training.learner import CausalLearner
from longstride.training.probe import Probe, require_served
from longstride.training.recipe import Recipe
from longstride.training.trainer import Trainer
from longstride.training.update import update_policy
from longstride.training.weights import Manifest, fetch, open_manifest, publish, read_probe

torch.set_num_threads(1)

BEGIN, END, TOOL = 0, 1, 2
SYMBOLS = range(3, 11)
ALLOWED = torch.zeros(12, dtype=torch.bool).index_fill(0, torch.tensor(SYMBOLS), True)
CONFIG = TransformerConfig(vocab_size=12, width=32, layers=1, heads=2, kv_heads=2, hidden=64, context=16)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def support(output: torch.Tensor) -> torch.Tensor:
    """Symbols, then the end mark alone."""
    rows = ALLOWED.repeat(len(output), 1)
    rows[output == END] = torch.arange(12) == END
    return rows


def learner_of(model: Transformer) -> CausalLearner:
    return CausalLearner(model, model.save, support)


def load(directory: Path) -> CausalLearner:
    return learner_of(Transformer.load(directory))


def load_without_grammar(directory: Path) -> CausalLearner:
    model = Transformer.load(directory)
    return CausalLearner(model, model.save)


def store(record: TokenRecord) -> StoredRecord:
    body = record.model_dump_json().encode()
    digest = sha256(body).hexdigest()
    return StoredRecord(ArtifactRef(key=f"s/tokens/{digest}", sha256=digest, size=len(body)), record)


class Play(NamedTuple):
    """One rollout of the game."""

    asked: int
    shown: int
    said: tuple[int, int]
    logprobs: tuple[float, float]

    @property
    def reward(self) -> float:
        return ((self.said[0] == self.asked) + (self.said[1] == self.shown)) / 2

    def candidate(self, task_id: str, group: str, temperature: float, version: int) -> Candidate:
        common = {"policy": "toy", "policy_version": version, "temperature": temperature}
        first = store(
            TokenRecord(
                prompt_ids=[BEGIN, self.asked], output_ids=self.said[:1], logprobs=self.logprobs[:1], mask=[1], **common
            )
        )
        second = store(
            TokenRecord(
                prefix=first.ref,
                prompt_ids=[TOOL, self.shown],
                output_ids=[self.said[1], END],
                logprobs=[self.logprobs[1], 0.0],
                mask=[1, 0],
                **common,
            )
        )
        exchanges = [
            Exchange(Generated(step=step, text="", action=Action(tool="say"), tokens=record.ref, policy="toy"))
            for step, record in enumerate((first, second), 1)
        ]
        ended = TaskEnded(outcome="failed", reason="stuck")
        trajectory = assemble(
            TaskIdentity(task_id, "session"), SubmitTask(instruction="repeat", group_id=group), exchanges, ended
        )
        return Candidate(trajectory, self.reward, [first, second])


@torch.no_grad()
def play(model: Transformer, deals: list[tuple[int, int]], temperature: float, seed: int) -> list[Play]:
    """Sample all rollouts at once."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.tensor([[BEGIN, asked] for asked, _ in deals])
    said, logprobs = [], []
    for turn in range(2):
        logits = (model(ids)[:, -1] / temperature).masked_fill(~ALLOWED, float("-inf"))
        choice = torch.multinomial(logits.softmax(-1), 1, generator=generator)
        said.append(choice[:, 0].tolist())
        logprobs.append(logits.log_softmax(-1).gather(1, choice)[:, 0].tolist())
        if turn == 0:
            ids = torch.cat([ids, choice, torch.tensor([[TOOL, shown] for _, shown in deals])], 1)
    columns = zip(deals, zip(*said, strict=True), zip(*logprobs, strict=True), strict=True)
    return [Play(*deal, words, logps) for deal, words, logps in columns]


def roll_out(model: Transformer, seed: int, *, groups=16, siblings=8, temperature=0.8, version=0) -> list[Candidate]:
    rng = random.Random(seed)
    deals = [(rng.choice(SYMBOLS), rng.choice(SYMBOLS)) for _ in range(groups)]
    plays = play(model, [deal for deal in deals for _ in range(siblings)], temperature, seed)
    names = product(range(groups), range(siblings))
    return [
        rollout.candidate(f"t{seed}-{group}-{sibling}", f"g{group}", temperature, version)
        for rollout, (group, sibling) in zip(plays, names, strict=True)
    ]


def batch_of(candidates: list[Candidate], base_version: int = 0, **options) -> Batch:
    return build_batch(candidates, policy="toy", base_version=base_version, **options)


def train(model: Transformer, batch: Batch, **recipe) -> dict[str, float]:
    return Trainer(learner_of(model), Recipe(**recipe)).update(batch).model_dump()


def weights(model: Transformer) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).clone()


@pytest.fixture(scope="module")
def batch() -> Batch:
    return batch_of(roll_out(Transformer(CONFIG, seed=1), seed=5))


@pytest.fixture
def model() -> Transformer:
    return Transformer(CONFIG, seed=1)


# --- it learns ---


def mean_reward(model: Transformer) -> float:
    plays = play(model, [deal for deal in product(SYMBOLS, SYMBOLS) for _ in range(4)], 1.0, seed=10**6)
    return sum(rollout.reward for rollout in plays) / len(plays)


def learn(seed: int, updates: int) -> tuple[float, float, torch.Tensor]:
    """Sampled reward before and after, and the weights."""
    model, state = Transformer(CONFIG, seed=seed), None
    before = mean_reward(model)
    for version in range(updates):
        batch = batch_of(roll_out(model, seed=1000 * seed + version, version=version), version)
        trainer = Trainer(learner_of(model), Recipe(learning_rate=3e-3), state)
        trainer.update(batch)
        state = trainer.optimizer_state()
    return before, mean_reward(model), weights(model)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_few_updates_raise_the_reward(seed):
    before, after, _ = learn(seed, updates=40)
    assert before < 0.3
    assert after > 0.8


def test_learning_is_repeatable():
    torch.testing.assert_close(learn(3, updates=2)[2], learn(3, updates=2)[2], rtol=0, atol=0)


# --- the update does not depend on how it is computed ---


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "sequence_sum_mean", "constant"])
@pytest.mark.parametrize("loss", ["ppo", "gspo", "cispo"])
def test_the_micro_batch_split_does_not_change_the_update(batch, loss, aggregation):
    def gradient(tokens: int) -> torch.Tensor:
        model = Transformer(CONFIG, seed=1)
        train(model, batch, loss=loss, aggregation=aggregation, constant=4, micro_batch_tokens=tokens, kl_weight=0.1)
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    # Rows have 6 tokens: 128 rows in one micro-batch against four of 32.
    torch.testing.assert_close(gradient(128 * 6), gradient(32 * 6), rtol=1e-4, atol=1e-7)


def test_on_policy_the_gradient_is_that_of_plain_grpo(batch, model):
    """At ratio 1 it is ``-mean_t A·∇logπ``: computed here from the samples, without the trainer's code."""
    train(model, batch, max_grad_norm=1e9)
    got = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    other = Transformer(CONFIG, seed=1)
    ids = torch.tensor([sample.segments[0].ids for sample in batch.samples])
    logits = (other(ids) / 0.8).masked_fill(~ALLOWED, float("-inf")).log_softmax(-1)
    said = [logits[:, at - 1].gather(1, ids[:, at, None])[:, 0] for at in (2, 5)]
    advantages = torch.tensor([sample.advantage for sample in batch.samples])
    (-(said[0] + said[1]) * advantages).sum().div(2 * len(batch.samples)).backward()
    want = torch.cat([parameter.grad.flatten() for parameter in other.parameters()])
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-6)


def test_the_same_seed_gives_the_same_weights_bit_for_bit(batch):
    first, second = (Transformer(CONFIG, seed=1) for _ in range(2))
    assert train(first, batch, minibatches=4, epochs=2) == train(second, batch, minibatches=4, epochs=2)
    assert torch.equal(weights(first), weights(second))


def test_another_seed_deals_other_minibatches(batch):
    first, second = (Transformer(CONFIG, seed=1) for _ in range(2))
    assert train(first, batch, minibatches=4)["optimizer_steps"] == 4
    train(second, batch, minibatches=4, seed=1)
    assert not torch.equal(weights(first), weights(second))


def test_a_global_random_state_is_left_alone(batch, model):
    torch.manual_seed(7)
    before = torch.get_rng_state()
    train(model, batch, minibatches=2)
    assert torch.equal(torch.get_rng_state(), before)


def test_metrics_say_what_was_done(batch, model):
    metrics = train(model, batch)
    assert metrics["tokens"] == 2 * len(batch.samples)
    assert metrics["rollouts"] + metrics["dropped"] == 16 * 8
    assert metrics["reward_mean"] == pytest.approx(sum(s.reward for s in batch.samples) / len(batch.samples))
    assert 0 < metrics["entropy"] <= torch.tensor(8.0).log().item() + 1e-4
    assert metrics["gap_max"] < 1e-4
    assert metrics["ratio_max"] > 1
    assert metrics["kl_behaviour"] == pytest.approx(metrics["kl_base"], abs=1e-5)
    assert metrics["grad_norm"] > 0


def test_a_step_raises_the_probability_of_what_was_better_than_its_siblings(batch, model):
    samples = [sample for sample in batch.samples if sample.advantage > 0]
    ids = torch.tensor([sample.segments[0].ids for sample in samples])

    def likelihood() -> float:
        with torch.no_grad():
            logits = model(ids).masked_fill(~ALLOWED, float("-inf")).log_softmax(-1)
        return sum(logits[:, at - 1].gather(1, ids[:, at, None]).sum().item() for at in (2, 5))

    before = likelihood()
    train(model, batch)
    assert likelihood() > before


# --- the gate ---


def recorded(batch: Batch, **changes) -> Batch:
    """The batch with changed records of every segment."""
    body = batch.model_dump()
    for group in body["groups"]:
        for sample in group["samples"]:
            for segment in sample["segments"]:
                for name, change in changes.items():
                    segment[name] = change(segment)
    return Batch.model_validate(body)


def test_the_gate_stops_log_probabilities_of_another_temperature(batch, model):
    hot = recorded(batch, turns=lambda s: [{**turn, "temperature": 2.0} for turn in s["turns"]])
    before = weights(model)
    with pytest.raises(UpdateRefused, match="trainer and engine disagree on the log-probabilities of"):
        train(model, hot)
    assert torch.equal(weights(model), before)


def test_the_gate_stops_log_probabilities_taken_without_the_grammar(batch, model):
    trainer = Trainer(CausalLearner(model, model.save))
    with pytest.raises(UpdateRefused, match="disagree"):
        trainer.update(batch)


def test_the_gate_stops_other_weights(batch):
    other = Transformer(CONFIG, seed=1)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(3)
    with pytest.raises(UpdateRefused, match="disagree"):
        train(other, batch)


def test_the_gate_stops_a_single_token_far_off(batch, model):
    one = recorded(batch)
    body = one.model_dump()
    body["groups"][0]["samples"][0]["segments"][0]["logprobs"] = (0, 0, -9.0, 0, 0, -2.0, 0)
    with pytest.raises(UpdateRefused, match="at the most"):
        train(model, Batch.model_validate(body), max_gap_mean=5.0)


def test_the_gate_stops_a_token_that_could_not_be_sampled(batch, model):
    forged = recorded(batch, ids=lambda s: (*s["ids"][:2], BEGIN, *s["ids"][3:]))
    with pytest.raises(UpdateRefused, match="probability 0"):
        train(model, forged)


def test_stale_tokens_may_differ_but_not_by_much(batch):
    moved = Transformer(CONFIG, seed=1)
    train(moved, batch, learning_rate=1e-3)
    stale = batch_of(roll_out(Transformer(CONFIG, seed=1), seed=5), base_version=1, max_staleness=1)
    metrics = train(moved, stale)
    assert metrics["stale_tokens"] == metrics["tokens"]
    assert 0 < metrics["stale_kl"] < 0.1
    assert metrics["kl_behaviour"] > metrics["kl_base"]
    with pytest.raises(UpdateRefused, match="too far off policy"):
        train(moved, stale, max_stale_kl=1e-6)


def test_an_empty_batch_is_refused_with_the_reasons(model):
    empty = batch_of([candidate._replace(reward=None) for candidate in roll_out(model, seed=5)])
    with pytest.raises(UpdateRefused, match=r'is empty.*"unrewarded":128'):
        train(model, empty)


def test_a_gradient_that_is_not_finite_is_refused(batch, model):
    def poisoned(gradient: torch.Tensor) -> torch.Tensor:
        return gradient * float("nan")

    model.norm.weight.register_hook(poisoned)
    with pytest.raises(UpdateRefused, match="not finite"):
        train(model, batch)


# --- the optimizer's state goes along ---


def test_two_trainers_with_the_state_handed_over_equal_one(batch):
    kept, handed = (Transformer(CONFIG, seed=1) for _ in range(2))
    recipe = Recipe(max_gap_mean=9, max_gap=9)
    one = Trainer(learner_of(kept), recipe)
    one.update(batch)
    one.update(batch)
    first = Trainer(learner_of(handed), recipe)
    first.update(batch)
    Trainer(learner_of(handed), recipe, first.optimizer_state()).update(batch)
    assert torch.equal(weights(kept), weights(handed))


def test_the_state_of_another_model_is_refused(batch, model):
    trainer = Trainer(learner_of(model))
    trainer.update(batch)
    wider = TransformerConfig(vocab_size=12, width=64, layers=1, heads=2, kv_heads=2, hidden=64, context=16)
    with pytest.raises(UpdateRefused, match="fits no parameter"):
        Trainer(learner_of(Transformer(wider)), optimizer_state=trainer.optimizer_state())
    with pytest.raises(UpdateRefused, match="not safetensors"):
        Trainer(learner_of(model), optimizer_state=b"nonsense")


# --- the gate before serving ---


def engine_scores(model: Transformer, probe: Probe) -> list[list[float]]:
    """By a loop of its own, one token at a time."""
    return [[_engine_score(model, segment, at) for at in range(len(segment.ids))] for segment in probe.segments]


@torch.no_grad()
def _engine_score(model: Transformer, segment: Segment, at: int) -> float:
    if not segment.mask[at]:
        return 0.0
    logits = model(torch.tensor([segment.ids[:at]]))[0, -1] / segment.turns[0].temperature
    return logits.masked_fill(~ALLOWED, float("-inf")).log_softmax(-1)[segment.ids[at]].item()


def test_an_engine_serves_only_the_weights_that_were_published(batch, model):
    trainer = Trainer(learner_of(model), Recipe(learning_rate=3e-2))
    trainer.update(batch)
    probe = trainer.probe(batch)
    assert require_served(probe, engine_scores(model, probe)) < 1e-5
    with pytest.raises(WeightsRefused, match="does not serve these weights"):
        require_served(probe, engine_scores(Transformer(CONFIG, seed=1), probe))
    with pytest.raises(WeightsRefused, match="differ from the trainer's by nan"):
        require_served(probe, [[float("nan")] * len(s.ids) for s in probe.segments])


def test_a_probe_holds_what_was_least_expected(batch, model):
    """A sure policy says the same after much harm."""
    probe = Trainer(learner_of(model)).probe(batch)
    everything = [segment for sample in batch.samples for segment in sample.segments]
    means = sorted(sum(segment.logprobs) / sum(segment.mask) for segment in everything)
    expected = {segment.ids for segment in everything if sum(segment.logprobs) / sum(segment.mask) <= means[3]}
    assert {segment.ids for segment in probe.segments} <= expected
    assert len(probe.segments) == 4


def test_a_probe_without_a_sampled_token_is_none(batch):
    segment = batch.samples[0].segments[0]
    with pytest.raises(ValueError, match="a probe without a sampled token proves nothing"):
        Probe(segments=[segment.model_copy(update={"mask": (0,) * len(segment.ids)})])


# --- the job: batch and base in, version out ---


class Job(NamedTuple):
    command: UpdatePolicy
    base: ArtifactRef
    artifacts: MemoryArtifacts
    directory: Path

    def run(self, **options) -> tuple:
        fields = {"base": self.base, "artifacts": self.artifacts, "directory": self.directory, "load": load}
        return update_policy(self.command, **{**fields, "created_at": NOW, **options})


@pytest.fixture
def job(batch, model, tmp_path) -> Job:
    artifacts = MemoryArtifacts()
    shipped = tmp_path / "shipped"
    model.save(shipped)
    (shipped / "tokenizer.json").write_text("{}")
    _, base = publish(shipped, artifacts=artifacts, policy="toy", version=0, created_at=NOW)
    ref = artifacts.put(
        batch.model_dump_json().encode(), session="batches", kind="batch", media_type="application/json"
    )
    command = UpdatePolicy(batch_id=batch.batch_id, batch=ref, policy="toy", base_version=0)
    return Job(command, base, artifacts, tmp_path / "weights")


def test_an_update_publishes_the_next_version(job, batch, model):
    event, manifest = job.run()
    assert (event.policy, event.policy_version, event.parent_version) == ("toy", 1, 0)
    assert event.batch_id == batch.batch_id
    assert open_manifest(event.manifest, job.artifacts, policy="toy", version=1) == manifest
    assert manifest.lineage.task_ids == batch.task_ids
    assert manifest.lineage.parent == job.base
    assert Recipe.model_validate(manifest.lineage.recipe) == Recipe()
    fetched = fetch(manifest, job.artifacts, job.directory)
    probe = read_probe(manifest, job.artifacts)
    assert require_served(probe, engine_scores(Transformer.load(fetched), probe)) < 1e-5
    assert (fetched / "tokenizer.json").read_text() == "{}"
    train(model, batch)
    assert torch.equal(weights(Transformer.load(fetched)), weights(model))


def test_the_same_command_twice_gives_the_same_version(job, tmp_path):
    first, _ = job.run()
    objects = {stored.key for stored in job.artifacts.list("")}
    second, _ = job.run(directory=tmp_path / "another machine")
    assert second == first
    assert {stored.key for stored in job.artifacts.list("")} == objects


def test_the_next_update_starts_from_version_and_moments(job, batch):
    event, manifest = job.run()
    fetched = fetch(manifest, job.artifacts, job.directory)
    following = batch_of(roll_out(Transformer.load(fetched), seed=6, version=1), base_version=1)
    ref = job.artifacts.put(following.model_dump_json().encode(), session="batches", kind="batch")
    command = UpdatePolicy(batch_id=following.batch_id, batch=ref, policy="toy", base_version=1)
    second, newer = job._replace(command=command, base=event.manifest).run()
    assert (second.policy_version, second.parent_version) == (2, 1)
    learner = load(fetched)
    warm = Trainer(learner, optimizer_state=job.artifacts.get(manifest.optimizer))
    warm.update(following)
    assert torch.equal(weights(learner.module), weights(Transformer.load(fetch(newer, job.artifacts, job.directory))))


class Killed(Exception):
    """Stands for the end of the process."""


class DyingArtifacts(MemoryArtifacts):
    """Takes a number of objects, then the process dies."""

    def __init__(self, survived: MemoryArtifacts, puts: int) -> None:
        super().__init__()
        self.survived, self.left = survived, puts

    def put(self, data: bytes, **fields) -> ArtifactRef:
        self.left -= 1
        if self.left < 0:
            raise Killed
        return self.survived.put(data, **fields)

    def get(self, ref: ArtifactRef) -> bytes:
        return self.survived.get(ref)


def test_a_kill_at_any_object_leaves_no_manifest_and_the_rerun_the_same_version(job, batch, tmp_path):
    def manifests() -> set[str]:
        return {stored.key for stored in job.artifacts.list("policies/manifest/")}

    before, puts = manifests(), 0
    while True:
        try:
            event, manifest = job.run(artifacts=DyingArtifacts(job.artifacts, puts))
        except Killed:
            assert manifests() == before
            assert not list(job.directory.glob(".training-*"))
            puts += 1
        else:
            break
    # Three files, the moments, the probe and the manifest.
    assert puts == len(manifest.files) + 3 == 6
    assert event == job.run()[0]


def test_a_manifest_of_another_version_is_no_base(job):
    other = job.command.model_copy(update={"base_version": 3})
    with pytest.raises(UpdateRefused, match=r"is batch_.* for toy@0; the command names batch_.* for toy@3"):
        job._replace(command=other).run()
    _, stranger = publish(
        job.directory.parent / "shipped", artifacts=job.artifacts, policy="other", version=0, created_at=NOW
    )
    with pytest.raises(WeightsRefused, match="manifest of other@0, not of toy@0"):
        job.run(base=stranger)


def test_what_is_no_batch_is_refused(job):
    ref = job.artifacts.put(b'{"batch_id": "x"}', session="batches", kind="batch")
    with pytest.raises(UpdateRefused, match="is not a batch: policy: Field required"):
        job._replace(command=job.command.model_copy(update={"batch": ref})).run()


def test_a_batch_that_is_gone_says_so(job):
    job.artifacts.delete(job.command.batch.key)
    with pytest.raises(ArtifactMissing):
        job.run()


def test_a_refused_update_publishes_nothing(job):
    before = {stored.key for stored in job.artifacts.list("")}
    with pytest.raises(UpdateRefused, match="disagree"):
        job.run(load=load_without_grammar)
    assert {stored.key for stored in job.artifacts.list("")} == before


def test_the_manifest_survives_json(job):
    _, manifest = job.run()
    assert Manifest.model_validate_json(manifest.model_dump_json()) == manifest
