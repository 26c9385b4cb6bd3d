import json
import math
import random
import time

import pytest
import torch

from longstride.agent.action_format import parse
from longstride.contracts.v1.commands import Sampling
from longstride.contracts.v1.context import Message
from longstride.learning import segment
from longstride.learning.samples import Group, Sample
from longstride.models.config import TransformerConfig
from longstride.models.tokenizer import Tokenizer
from longstride.models.transformer import Transformer
from longstride.policies.base import ContextOverflow, PolicyTimeout, Turn
from longstride.policies.builtin import vocabulary
from longstride.policies.builtin.decode import decode
from longstride.policies.builtin.evaluate import evaluate
from longstride.policies.builtin.family import sample
from longstride.policies.builtin.grammar import Grammar
from longstride.policies.builtin.improve import batch_of, segment_of
from longstride.policies.builtin.learner import load_learner
from longstride.policies.builtin.policy import BuiltinPolicy
from longstride.policies.builtin.rollout import Player
from longstride.policies.registry import BUILTIN_WEIGHTS
from longstride.policies.sampling import Dice, choose
from longstride.training.rows import collate, rows_of

torch.set_num_threads(1)

TOKENIZER = vocabulary.tokenizer()
QUESTION = Turn(Message(role="user", content="Count the rows of a.csv."))


def random_model(context: int = 512) -> Transformer:
    shape = TransformerConfig(
        vocab_size=TOKENIZER.vocab_size, width=32, layers=2, heads=4, kv_heads=4, hidden=48, taps=3, context=context
    )
    model = Transformer(shape, seed=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model.eval()


@pytest.fixture(scope="module")
def policy() -> BuiltinPolicy:
    return BuiltinPolicy(random_model(), TOKENIZER, version=5)


def ask(policy, *turns, timeout_s=30.0, **sampling):
    return policy.generate(turns or (QUESTION,), (), Sampling(**{"max_tokens": 60, **sampling}), timeout_s)


@pytest.mark.parametrize("temperature", [0.0, 1.0, 4.0])
def test_even_random_weights_write_well_formed_actions_or_are_cut_off(policy, temperature):
    for seed in range(3):
        generation = ask(policy, temperature=temperature, seed=seed, max_tokens=100)
        if generation.finish_reason == "stop":
            assert parse(generation.text).tool in vocabulary.TOOLS
        else:
            assert len(generation.record.output_ids) == 100
    assert (generation.policy, generation.policy_version) == ("builtin", 5)


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.6, 1.0), (2.0, 1.0), (1.0, 0.8), (0.0, 1.0)])
def test_recorded_logprobs_are_those_of_one_forward_pass_within_the_grammar(policy, temperature, top_p):
    record = ask(policy, temperature=temperature, top_p=top_p, seed=3, max_tokens=120).record
    output = torch.tensor(record.output_ids)
    with torch.no_grad():
        logits = policy.model(torch.tensor([record.prompt_ids + record.output_ids]))[0, len(record.prompt_ids) - 1 : -1]
    logits = logits.double().masked_fill(~policy.grammar.support(output), -math.inf) / (temperature or 1.0)
    probabilities = logits.softmax(-1)
    if top_p < 1:
        ordered, index = probabilities.sort(-1, descending=True)
        dropped = (ordered.cumsum(-1) - ordered) >= top_p
        probabilities = probabilities.masked_fill(torch.zeros_like(dropped).scatter(1, index, dropped), 0)
        probabilities /= probabilities.sum(-1, keepdim=True)
    expected = probabilities.gather(1, output[:, None])[:, 0].log().float()
    torch.testing.assert_close(torch.tensor(record.logprobs), expected, atol=1e-4, rtol=0)


def test_forced_tokens_have_mask_and_logprob_zero():
    shipped = BuiltinPolicy.load(BUILTIN_WEIGHTS / "v1", 1)
    record = ask(shipped, temperature=1.0, seed=1, max_tokens=300).record
    states = shipped.grammar.states(torch.tensor(record.output_ids))
    forced = (shipped.grammar.forced[states] >= 0).tolist()
    assert [not chosen for chosen in record.mask] == forced
    assert all(logprob == 0 for logprob, chosen in zip(record.logprobs, record.mask, strict=True) if not chosen)
    assert 0 < sum(record.mask) < len(record.mask)


def test_the_trainer_sees_the_policy_that_acted(policy, tmp_path):
    """Its log-probabilities over whole episodes are the recorded ones."""
    policy.model.save(tmp_path)
    policy.tokenizer.save(tmp_path)
    learner = load_learner(tmp_path)
    rng = random.Random(2)
    dice = Dice(0.8, generator=torch.Generator().manual_seed(0))
    episodes = Player(policy.model, TOKENIZER).play([sample(rng) for _ in range(6)], dice)
    samples = [
        Sample(task_id=str(n), reward=0.0, advantage=1.0, segments=(segment_of(episode, 5, 0.8),))
        for n, episode in enumerate(episodes)
    ]
    rows = collate(rows_of([s for s in samples if s.trainable]))
    with torch.no_grad():
        scored = learner.score(rows).logprobs
    assert int(rows.mask.sum()) > 100
    torch.testing.assert_close(scored[rows.mask], rows.behaviour[rows.mask], atol=1e-4, rtol=0)


@pytest.mark.parametrize("temperature", [1.0, 0.6, 2.0])
def test_scoring_gives_what_generating_recorded(policy, temperature):
    """To the bit: it is the same path, over two turns of which the second follows an observation."""
    first = ask(policy, temperature=temperature, seed=3, max_tokens=120)
    said = Turn(Message(role="assistant", content=first.text), first.record)
    second = ask(
        policy, QUESTION, said, Turn(Message(role="tool", content="no match")), temperature=temperature, seed=4
    )
    ids, turns = [], []
    for record in (first.record, second.record):
        assert list(record.prompt_ids[: len(ids)]) == ids
        ids = [*record.prompt_ids, *record.output_ids]
        start = len(record.prompt_ids)
        turns.append(segment.Turn(start=start, end=len(ids), policy_version=5, temperature=temperature))
    none = [0] * len(ids)
    scored = policy.score(segment.Segment(ids=ids, mask=none, logprobs=none, turns=turns))
    expected = [0.0] * len(ids)
    for record, turn in zip((first.record, second.record), turns, strict=True):
        expected[turn.start : turn.end] = record.logprobs
    assert scored == expected
    assert sum(logprob != 0 for logprob in scored) > 50


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "an output without a prompt"),
        ([0] * 500, "560 ids do not fit a context of 512"),
        ([0] * 512, "a prompt of 512 ids leaves no room in a context of 512"),
    ],
)
def test_what_cannot_have_been_sampled_has_no_score(policy, prompt, message):
    output = ask(policy, temperature=1.0, seed=1).record.output_ids
    ids, none = [*prompt, *output], [0] * (len(prompt) + len(output))
    turn = segment.Turn(start=len(prompt), end=len(ids), policy_version=5, temperature=1.0)
    with pytest.raises(ValueError, match=message):
        policy.score(segment.Segment(ids=ids, mask=none, logprobs=none, turns=[turn]))


def test_many_prompts_decode_as_each_alone(policy):
    prompts = [
        policy.prompt([Turn(Message(role="user", content=text))])
        for text in ("Count.", "What is the total of a in b.csv?", "x" * 30)
    ]
    together = decode(policy.model, policy.grammar, prompts, Dice(0.0), 80)
    for prompt, output in zip(prompts, together, strict=True):
        (alone,) = decode(policy.model, policy.grammar, [prompt], Dice(0.0), 80)
        assert output.ids == alone.ids
        torch.testing.assert_close(output.logprobs, alone.logprobs, atol=1e-4, rtol=0)


def test_a_batch_whose_rows_end_together_at_their_limit_stays_in_its_cache(policy):
    """A row near its limit is padded as far as another row's forced tokens reach."""
    prompts = [policy.prompt([Turn(Message(role="user", content="x" * n))]) for n in range(1, 30)]
    for room in range(1, 12):
        outputs = decode(
            policy.model, policy.grammar, prompts, Dice(4.0, generator=torch.Generator().manual_seed(room)), room
        )
        assert max(len(output.ids) for output in outputs) == room


def test_a_seed_repeats_an_answer_and_turns_differ(policy):
    assert ask(policy, temperature=1.0, seed=1).text == ask(policy, temperature=1.0, seed=1).text
    assert ask(policy, temperature=1.0, seed=1).text != ask(policy, temperature=1.0, seed=2).text


def test_the_next_prompt_starts_with_the_recorded_ids(policy):
    first = ask(policy, temperature=1.0, seed=1)
    said = Turn(Message(role="assistant", content=first.text), first.record)
    again = ask(policy, QUESTION, said, Turn(Message(role="tool", content="no match")))
    whole = first.record.prompt_ids + first.record.output_ids
    assert again.record.prompt_ids[: len(whole)] == whole


def test_another_policys_answer_is_read_as_text(policy):
    first = ask(policy, temperature=1.0, seed=1)
    foreign = first.record.model_copy(update={"policy": "local:x", "output_ids": (9999,) * len(first.record.mask)})
    prompt = policy.prompt([QUESTION, Turn(Message(role="assistant", content="hm"), foreign)])
    assert max(prompt) < TOKENIZER.vocab_size


def test_it_stops_in_time(policy):
    started = time.monotonic()
    with pytest.raises(PolicyTimeout, match=r"builtin@5 did not end its answer within 0 s"):
        ask(policy, timeout_s=0.0)
    assert time.monotonic() - started < 5


def test_a_long_conversation_overflows(policy):
    turns = [Turn(Message(role="tool", content="q" * 90)) for _ in range(6)]
    with pytest.raises(ContextOverflow, match=r"tokens; builtin reads \d+"):
        ask(policy, *turns)


def test_the_room_in_the_window_bounds_an_answer():
    narrow = BuiltinPolicy(random_model(context=100), TOKENIZER, 0)
    generation = ask(narrow, temperature=4.0, seed=0, max_tokens=5000)
    assert len(generation.record.prompt_ids) + len(generation.record.output_ids) <= 100


def test_a_tokenizer_of_another_model_is_refused():
    with pytest.raises(ValueError, match=r"the model reads \d+ ids, the tokenizer makes 257"):
        BuiltinPolicy(random_model(), Tokenizer(["<end>"], [], []), 0)


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.5, 1.0), (1.0, 0.7)])
def test_samples_follow_the_distribution_that_their_logprobs_state(temperature, top_p):
    """χ² with 5 or fewer degrees of freedom; 20.5 is exceeded by chance once in a thousand at 5."""
    logits = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -math.inf, -0.5]).expand(20_000, 7)
    tokens, logprobs = choose(logits, Dice(temperature, top_p, torch.Generator().manual_seed(7)))
    chi, total = 0.0, 0.0
    for token in range(7):
        hits = tokens == token
        if hits.any():
            probability = float(logprobs[hits][0].exp())
            chi += (int(hits.sum()) - 20_000 * probability) ** 2 / (20_000 * probability)
            total += probability
    assert total == pytest.approx(1, abs=1e-4)
    assert chi < 20.5
    assert not (tokens == 5).any()


def test_groups_without_signal_are_left_out(policy):
    class Fixed:
        def __init__(self, reward):
            self.reward, self.ids, self.turns = reward, [1, 2], []

    batch = batch_of([Fixed(r) for r in (1.0, 0.0, 1.0, 1.0, 0.0, 0.0)], 2, version=3, temperature=1.0)
    assert [type(group) for group in batch.groups] == [Group]
    assert [s.reward for s in batch.samples] == [1.0, 0.0]
    assert batch.base_version == 3


def test_the_grammar_is_made_of_the_tokenizer_alone(tmp_path):
    TOKENIZER.save(tmp_path)
    assert torch.equal(Grammar(Tokenizer.load(tmp_path)).table, Grammar(TOKENIZER).table)


@pytest.mark.parametrize("version", [0, 1])
def test_the_shipped_weights_are_as_right_as_their_card_says(version):
    directory = BUILTIN_WEIGHTS / f"v{version}"
    policy = BuiltinPolicy.load(directory, version)
    (greedy, _) = json.loads((directory / "training.json").read_text())["evaluations"]
    measured = evaluate(Player(policy.model, policy.tokenizer), count=40).overall
    stated = greedy["overall"]["right"] / greedy["overall"]["tries"]
    assert stated > (0.95 if version else 0.8)
    assert measured.rate >= stated - 0.1
    card = (directory / "MODEL_CARD.md").read_text()
    assert f"{stated:.1%} ({greedy['overall']['right']}/{greedy['overall']['tries']})" in card
    assert sum(file.stat().st_size for file in directory.iterdir()) < 4_000_000
