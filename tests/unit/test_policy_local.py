"""With a tiny Llama of random weights, made here."""

import json
import sys

import pytest
import torch

from longstride.contracts.artifact import ref_for
from longstride.contracts.v1.action import ToolSpec
from longstride.contracts.v1.commands import Sampling
from longstride.contracts.v1.context import Message
from longstride.contracts.v1.tokens import TokenRecord
from longstride.policies.base import ContextOverflow, PolicyTimeout, PolicyUnavailable, Turn
from longstride.policies.local import LocalPolicy, recorded
from longstride.policies.registry import PolicyRegistry
from tests.support.tiny_gguf import write_gguf

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

torch.set_num_threads(1)

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NO_SYSTEM = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]{% else %}{{ m['content'] }}{{ eos_token }}{% endif %}{% endfor %}"
)
TOOL = ToolSpec(name="shell", description="Run it.", parameters={"type": "object"})
SYSTEM = Message(role="system", content="rules")
QUESTION = Message(role="user", content="what?")


def write_model(directory, template=CHATML, positions=512):
    from tokenizers import decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    specials = ["<|im_start|>", "<|im_end|>", "<s>"]
    vocabulary = {piece: index for index, piece in enumerate([*specials, *alphabet, "Ġan", "at"])}
    core = tokenizers.Tokenizer(models.BPE(vocabulary, [("a", "t")]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", bos_token="<s>", additional_special_tokens=["<|im_start|>"]
    )
    tokenizer.chat_template = template
    config = transformers.LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=positions,
        eos_token_id=vocabulary["<|im_end|>"],
        bos_token_id=vocabulary["<s>"],
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def policy(directory):
    return LocalPolicy.load(directory, f"local:{directory}")


def generate(policy, *turns, temperature=0.0, max_tokens=12, timeout_s=60.0, **sampling):
    asked = Sampling(temperature=temperature, max_tokens=max_tokens, **sampling)
    return policy.generate(turns, [TOOL], asked, timeout_s)


def test_greedy_ids_are_those_of_transformers_generate(policy, directory):
    generation = generate(policy, Turn(SYSTEM), Turn(QUESTION))
    prompt = torch.tensor([generation.record.prompt_ids])
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    expected = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=12, pad_token_id=0
    )
    assert generation.record.output_ids == tuple(expected[0, prompt.shape[1] :].tolist())
    assert generation.usage.input_tokens == prompt.shape[1]
    assert generation.usage.output_tokens == len(generation.record.output_ids)
    assert generation.policy == policy.name


def test_a_gguf_file_answers_as_the_safetensors_that_it_was_made_of(policy, directory, tmp_path):
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    path = write_gguf(directory, tmp_path / "tiny.gguf")
    converted = PolicyRegistry().resolve(f"local:{path}")
    expected, found = (generate(one, Turn(SYSTEM), Turn(QUESTION)) for one in (policy, converted))
    assert found.policy == f"local:{path}"
    assert found.record.prompt_ids == expected.record.prompt_ids
    assert found.record.output_ids == expected.record.output_ids
    assert found.record.logprobs == pytest.approx(expected.record.logprobs, abs=1e-4)
    assert converted.context_window == policy.context_window


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.5, 1.0), (2.0, 0.7)])
def test_logprobs_are_those_of_the_sampling_distribution(policy, temperature, top_p):
    record = generate(policy, Turn(QUESTION), temperature=temperature, top_p=top_p, seed=4, max_tokens=30).record
    ids = torch.tensor([record.prompt_ids + record.output_ids])
    with torch.no_grad():
        logits = policy._model(input_ids=ids).logits[0, len(record.prompt_ids) - 1 : -1].float() / temperature
    probabilities = logits.softmax(-1)
    if top_p < 1:
        ordered, index = probabilities.sort(-1, descending=True)
        dropped = torch.zeros_like(probabilities).scatter(1, index, ordered.cumsum(-1) - ordered) >= top_p
        probabilities = probabilities.masked_fill(dropped, 0)
        probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    expected = probabilities.gather(1, torch.tensor(record.output_ids)[:, None])[:, 0].log()
    torch.testing.assert_close(torch.tensor(record.logprobs), expected, atol=1e-4, rtol=0)


def test_a_seed_repeats_an_answer(policy):
    first, again, other = (
        generate(policy, Turn(QUESTION), temperature=1.0, seed=seed).record.output_ids for seed in (1, 1, 2)
    )
    assert first == again != other


def test_the_tools_are_described_in_the_prompt(policy):
    text = policy._tokenizer.decode(policy.prompt([Turn(SYSTEM), Turn(QUESTION)], [TOOL]))
    assert text.startswith("<|im_start|>system\nrules\n\nThe tools:\n- shell: Run it.")
    assert text.endswith("<|im_start|>user\nwhat?<|im_end|>\n<|im_start|>assistant\n")


def turn(policy, text, prompt, *, step=1, ended=True, prefix=None):
    """An answer of this policy's as it would have been recorded."""
    ids = policy._encode(text) + ([policy._tokenizer.eos_token_id] if ended else [])
    record = TokenRecord(
        policy=policy.name,
        policy_version=0,
        prefix=prefix,
        prompt_ids=tuple(prompt),
        output_ids=tuple(ids),
        logprobs=(0.0,) * len(ids),
        mask=(1,) * len(ids),
        temperature=1.0,
    )
    ref = ref_for(record.model_dump_json().encode(), session="s", kind="tokens")
    return Turn(Message(role="assistant", content=text, tokens=ref, step=step), record)


@pytest.mark.parametrize("template", [CHATML, NO_SYSTEM])
def test_a_continued_prompt_equals_the_template_over_the_whole_conversation(tmp_path, template):
    policy = LocalPolicy.load(write_model(tmp_path, template), "local:x")
    seen = Turn(Message(role="tool", content="a cat"))
    turns = [Turn(SYSTEM), Turn(QUESTION)]
    first = turn(policy, "hello at", policy.prompt(turns, []))
    with_first = [*turns, first, seen]
    second_prompt = policy.prompt(with_first, [])
    new = second_prompt[len(first.record.prompt_ids) + len(first.record.output_ids) :]
    second = turn(policy, "more", new, step=2, prefix=first.message.tokens)
    talk = [*with_first, second, seen]
    whole = policy.prompt([Turn(t.message) for t in talk], [])
    assert policy.prompt(talk, []) == whole
    assert policy.prompt(with_first, []) == policy.prompt([Turn(t.message) for t in with_first], [])


def test_recorded_ids_are_never_tokenized_again(policy):
    turns = [Turn(SYSTEM), Turn(QUESTION)]
    spelled = turn(policy, "a", policy.prompt(turns, []))
    ids = (*policy._encode("a"), *policy._encode("t"), policy._tokenizer.eos_token_id)
    record = spelled.record.model_copy(update={"output_ids": ids, "logprobs": (0.0,) * 3, "mask": (1,) * 3})
    prompt = policy.prompt([*turns, Turn(spelled.message, record), Turn(Message(role="tool", content="x"))], [])
    assert prompt[: len(record.prompt_ids) + 3] == [*record.prompt_ids, *ids]
    assert policy._encode("at") != policy._encode("a") + policy._encode("t")


def test_an_answer_cut_off_is_closed_by_the_template(policy):
    turns = [Turn(QUESTION)]
    cut = turn(policy, "hello", policy.prompt(turns, []), ended=False)
    text = policy._tokenizer.decode(policy.prompt([*turns, cut, Turn(Message(role="tool", content="x"))], []))
    assert "hello<|im_end|>\n<|im_start|>user\nx<|im_end|>" in text


def test_a_broken_chain_is_tokenized_anew(policy):
    first = turn(policy, "one", [1, 2])
    second = turn(policy, "two", [3], step=2, prefix=first.message.tokens)
    assert recorded([first, second], policy.name)[0] == [
        *first.record.prompt_ids,
        *first.record.output_ids,
        3,
        *second.record.output_ids,
    ]
    assert recorded([second], policy.name)[0] == []
    assert recorded([first, Turn(Message(role="assistant", content="who"))], policy.name)[0] == []
    assert recorded([first], "local:other")[0] == []


def test_it_stops_in_time(policy):
    with pytest.raises(PolicyTimeout, match="did not end its answer in time"):
        generate(policy, Turn(QUESTION), timeout_s=0.0)


def test_a_long_conversation_overflows(policy):
    with pytest.raises(ContextOverflow, match="takes 512"):
        generate(policy, Turn(Message(role="user", content="x" * 1000)))


def test_the_answer_ends_at_the_token_limit(policy):
    generation = generate(policy, Turn(QUESTION), max_tokens=3)
    assert len(generation.record.output_ids) <= 3
    assert generation.finish_reason in ("stop", "length")


def test_without_transformers_it_says_what_to_install(monkeypatch, directory):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(PolicyUnavailable, match=r"needs transformers: pip install 'longstride\[local\]'"):
        LocalPolicy.load(directory, "local:x")


def test_what_is_no_model_is_named(tmp_path, directory):
    with pytest.raises(PolicyUnavailable, match=r"neither a directory with a config\.json nor a \.gguf file"):
        LocalPolicy.load(tmp_path, "local:x")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(PolicyUnavailable, match="cannot be loaded"):
        LocalPolicy.load(tmp_path, "local:x")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF????")
    with pytest.raises(PolicyUnavailable, match="cannot be loaded"):
        LocalPolicy.load(tmp_path / "broken.gguf", "local:x")


def test_a_tokenizer_without_chat_template_is_refused(tmp_path):
    with pytest.raises(PolicyUnavailable, match="no usable chat template"):
        LocalPolicy.load(write_model(tmp_path, None), "local:x")


def test_an_unknown_dtype_is_refused(monkeypatch, directory):
    monkeypatch.setenv("LONGSTRIDE_LOCAL_DTYPE", "int3")
    with pytest.raises(PolicyUnavailable, match="must be one of float32"):
        LocalPolicy.load(directory, "local:x")
