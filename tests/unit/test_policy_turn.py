import json
import pickle

import pytest

from longstride.agent.context import Context as AgentContext
from longstride.agent.context import ContextHead, segment
from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.action import Action, Usage
from longstride.contracts.v1.commands import Generate, Sampling
from longstride.contracts.v1.context import Message
from longstride.contracts.v1.tokens import TokenRecord
from longstride.policies.artifacts import CachedArtifacts
from longstride.policies.base import ContextOverflow, Generation, PolicyTimeout, PolicyUnavailable, ToolCall
from longstride.policies.scripted import Script, ScriptedPolicy
from longstride.policies.turn import answer
from longstride.storage.memory import MemoryArtifacts

GOOD = '{"tool": "submit", "arguments": {"answer": "1"}}'
QUESTION = Message(role="user", content="what?")


class Shelf(MemoryArtifacts):
    """An artifact store that counts its reads."""

    reads = 0

    def get(self, ref: ArtifactRef) -> bytes:
        self.reads += 1
        return super().get(ref)


class Counting:
    """A policy whose prompt is one id a message and whose answers are ids from 100 on."""

    name, version, context_window = "counting", 3, 1000

    def __init__(self, text: str = GOOD) -> None:
        self.text = text

    def generate(self, turns, tools, sampling, timeout_s):
        ids = []
        for turn in turns:
            ids += turn.record.output_ids if turn.record else [len(turn.message.content)]
        record = TokenRecord(
            policy=self.name,
            policy_version=self.version,
            prompt_ids=tuple(ids),
            output_ids=(100, 101),
            logprobs=(-0.5, 0.0),
            mask=(1, 0),
            temperature=1.0,
        )
        return Generation(self.text, self.name, self.version, record=record, usage=Usage(input_tokens=len(ids)))


def ask(policy, *messages: Message, shelf: Shelf | CachedArtifacts | None = None, parent: ArtifactRef | None = None):
    head = ContextHead(parent=parent, tail=messages, messages=len(messages))
    command = Generate(step=1, policy=None, track="fast", context=head, tools=(), sampling=Sampling(), timeout_s=0.2)
    return answer(command, policy=policy, artifacts=shelf or Shelf(), session_id="s1", tools=())


def scripted(line: dict) -> ScriptedPolicy:
    return ScriptedPolicy(Script.model_validate_json(json.dumps({"lines": [line]})))


def test_an_action_is_parsed_and_its_tokens_are_kept():
    shelf = Shelf()
    generated = ask(Counting(), QUESTION, shelf=shelf)
    assert generated.action == Action(tool="submit", arguments={"answer": "1"})
    assert (generated.policy, generated.policy_version, generated.context_window) == ("counting", 3, 1000)
    assert generated.tokens is not None
    assert generated.tokens.key.startswith("s1/tokens/")
    record = TokenRecord.model_validate_json(shelf.get(generated.tokens))
    assert (record.prefix, record.prompt_ids, record.output_ids) == (None, (5,), (100, 101))


def test_records_chain_so_that_each_holds_only_what_is_new():
    shelf, messages = Shelf(), [QUESTION]
    for step in range(1, 6):
        generated = ask(Counting(), *messages, shelf=shelf)
        messages.append(Message(role="assistant", content=generated.text, tokens=generated.tokens, step=step))
        messages.append(Message(role="tool", content="seen" * step, step=step))
    records = [TokenRecord.model_validate_json(shelf.get(m.tokens)) for m in messages if m.tokens]
    assert [r.prompt_ids for r in records] == [(5,), (4,), (8,), (12,), (16,)]
    assert [r.prefix for r in records] == [None, *(m.tokens for m in messages if m.tokens)][:5]


def test_a_chain_begins_anew_where_the_prompt_was_changed():
    shelf = Shelf()
    first = ask(Counting(), QUESTION, shelf=shelf)
    said = Message(role="assistant", content=first.text, tokens=first.tokens, step=1)
    seen = Message(role="tool", content="seen", step=1)
    changed = ask(Counting(), Message(role="user", content="summary"), said, seen, shelf=shelf)
    record = TokenRecord.model_validate_json(shelf.get(changed.tokens))
    assert (record.prefix, record.prompt_ids) == (None, (7, 100, 101, 4))


def test_another_policys_record_is_no_prefix():
    shelf = Shelf()
    first = ask(Counting(), QUESTION, shelf=shelf)
    said = Message(role="assistant", content=first.text, tokens=first.tokens, step=1)
    other = Counting()
    other.name = "other"
    record = TokenRecord.model_validate_json(shelf.get(ask(other, QUESTION, said, shelf=shelf).tokens))
    assert (record.prefix, record.prompt_ids) == (None, (5, 100, 101))


def test_the_same_command_stores_the_same_objects():
    shelf = Shelf()
    assert ask(Counting(), QUESTION, shelf=shelf) == ask(Counting(), QUESTION, shelf=shelf)
    assert len(list(shelf.list())) == 1


def test_sealed_segments_are_read_and_then_remembered():
    shelf = Shelf()
    cached = CachedArtifacts(shelf)
    ref, data = segment(AgentContext().add(QUESTION), "s1")
    shelf.put(data, session="s1", kind="context", media_type="application/json")
    for _ in range(3):
        generated = ask(Counting(), Message(role="user", content="more"), shelf=cached, parent=ref)
    record = TokenRecord.model_validate_json(MemoryArtifacts.get(shelf, generated.tokens))
    assert record.prompt_ids == (5, 4)
    assert shelf.reads == 1


def test_the_cache_holds_no_more_than_it_may():
    shelf = Shelf()
    cached = CachedArtifacts(shelf, capacity=10)
    refs = [cached.put(bytes([k]) * 4, session="s", kind="k") for k in range(3)]
    assert cached.get(refs[2]) == b"\2\2\2\2"
    assert shelf.reads == 0
    assert cached.get(refs[0]) == b"\0\0\0\0"
    assert shelf.reads == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "the answer is empty"), ("I think so", "expected a JSON object"), (GOOD + GOOD, "a second JSON value")],
)
def test_garbage_is_a_format_error(text, reason):
    generated = ask(Counting(text), QUESTION)
    assert generated.action is None
    assert generated.error is None
    assert reason in generated.format_error
    assert generated.text == text


def test_an_endless_answer_is_a_format_error_and_its_start_is_kept():
    text = '{"tool": "shell", "arguments": {"command": "' + "é" * 20_000 + '"}}'
    generated = ask(Counting(text), QUESTION)
    assert generated.action is None
    assert "at most 16384 are read" in generated.format_error
    assert text.startswith(generated.text)
    assert 16_380 <= len(generated.text.encode()) <= 16_384


def test_an_answer_cut_at_its_token_limit_says_so():
    class Cut(Counting):
        def generate(self, turns, tools, sampling, timeout_s):
            return Generation('{"tool": "shell", "argu', "cut", None, finish_reason="length")

    generated = ask(Cut(), QUESTION)
    assert generated.finish_reason == "length"
    assert generated.format_error.startswith(
        "the answer was cut off at its token limit: not JSON at offset 18: Unterminated string"
    )


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ({"hang": 3600}, "scripted did not answer within 0.2 s"),
        ({"raise": "no GPU left"}, "no GPU left"),
        ({"raise": "x" * 20_000}, "xxx"),
        ({"overflow": True}, "scripted finds the conversation too long"),
    ],
)
def test_a_policy_without_an_answer_is_an_error_that_is_not_the_agents(line, error):
    generated = ask(scripted(line), QUESTION)
    assert generated.error.startswith(error)
    assert (generated.action, generated.format_error, generated.text) == (None, None, "")


@pytest.mark.parametrize(
    ("thought", "arguments", "expected"),
    [
        ("look", '{"command": "ls"}', Action(tool="shell", arguments={"command": "ls"}, thought="look")),
        ("", "", Action(tool="shell")),
        ("", '{"command": NaN}', None),
        ("", '{"command": "ls"', None),
        ("", '{}, "tool": "python"', None),
        ("", "[]", None),
    ],
)
def test_a_tool_call_in_a_field_of_its_own_is_read_as_strictly(thought, arguments, expected):
    class Calling(Counting):
        def generate(self, turns, tools, sampling, timeout_s):
            return Generation(
                thought, "calling", None, tool_call=ToolCall("shell", arguments), finish_reason="tool_calls"
            )

    generated = ask(Calling(), QUESTION)
    assert generated.action == expected
    assert (generated.format_error is None) == (expected is not None)


@pytest.mark.parametrize(
    "error", [PolicyTimeout("late", retryable=True), ContextOverflow("long"), PolicyUnavailable("gone")]
)
def test_errors_pickle(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.retryable) == (type(error), str(error), error.retryable)
