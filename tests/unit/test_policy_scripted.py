import json
import time

import pytest

from longstride.agent.action_format import parse
from longstride.contracts.v1.commands import Sampling
from longstride.contracts.v1.context import Message
from longstride.policies.base import ContextOverflow, PolicyTimeout, PolicyUnavailable, Turn
from longstride.policies.scripted import Script, ScriptedPolicy

LIST = {"tool": "shell", "arguments": {"command": "ls"}}
SUBMIT = {"tool": "submit", "arguments": {"answer": "42"}}


def say(script: dict, *messages: Message, timeout_s: float = 5.0) -> str:
    policy = ScriptedPolicy(Script.model_validate_json(json.dumps(script)))
    return policy.generate([Turn(m) for m in messages], (), Sampling(), timeout_s).text


def after(step: int, seen: str = "seen") -> list[Message]:
    question = Message(role="user", content="what?")
    past = [
        (Message(role="assistant", content="{}", step=k), Message(role="tool", content=seen, step=k))
        for k in range(1, step + 1)
    ]
    return [question, *(message for pair in past for message in pair)]


def test_lines_follow_the_steps_and_a_repeated_call_gets_the_same_line():
    script = {"lines": [LIST, SUBMIT]}
    assert parse(say(script, *after(0))).tool == "shell"
    assert parse(say(script, *after(1))).tool == "submit"
    assert parse(say(script, *after(1))).tool == "submit"


def test_a_compacted_context_does_not_set_the_script_back():
    kept = after(1)[-2:]
    assert parse(say({"lines": [LIST, SUBMIT]}, Message(role="user", content="summary"), *kept)).tool == "submit"


def test_after_the_last_line_it_repeats_or_fails():
    assert parse(say({"lines": [LIST], "then": "repeat"}, *after(7))).tool == "shell"
    with pytest.raises(PolicyUnavailable, match="has no line 8: its script has 1"):
        say({"lines": [LIST]}, *after(7))


def test_rules_read_the_last_message_and_fill_in_its_groups():
    script = {
        "rules": [
            {
                "when": r"found (\S+)",
                "do": {"tool": "read_file", "arguments": {"path": "{1}", "deep": [{"x": "{2}{1}"}]}},
            },
            {"when": "", "do": SUBMIT},
        ]
    }
    found = parse(say(script, *after(1, 'found a"b.csv')))
    assert found.arguments == {"path": 'a"b.csv', "deep": [{"x": '{2}a"b.csv'}]}
    assert parse(say(script, *after(1, "nothing"))).tool == "submit"


def test_no_rule_fits():
    with pytest.raises(PolicyUnavailable, match="no rule for the last message: 'nothing'"):
        say({"rules": [{"when": "found", "do": SUBMIT}]}, *after(1, "nothing"))


@pytest.mark.parametrize("text", ["", "not an action", "{"])
def test_it_says_garbage_as_told(text):
    assert say({"lines": [{"say": text}]}, *after(0)) == text


def test_it_hangs_until_the_time_is_up():
    started = time.monotonic()
    with pytest.raises(PolicyTimeout, match=r"within 0\.1 s"):
        say({"lines": [{"hang": 3600}]}, *after(0), timeout_s=0.1)
    assert 0.1 <= time.monotonic() - started < 2
    assert say({"lines": [{"hang": 0.01}]}, *after(0)) == ""


@pytest.mark.parametrize("retryable", [True, False])
def test_it_raises_as_told(retryable):
    with pytest.raises(PolicyUnavailable, match="gone") as caught:
        say({"lines": [{"raise": "gone", "retryable": retryable}]}, *after(0))
    assert caught.value.retryable is retryable


def test_it_overflows_as_told():
    with pytest.raises(ContextOverflow):
        say({"lines": [{"overflow": True}]}, *after(0))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the script .*: No such file"),
        ("{", "is not a script: .*JSON"),
        (b"\xff\xfe{}", r"is not a script: it is not UTF-8 text \(byte 0\)"),
        ('{"version": 2, "lines": [{"say": ""}]}', "version"),
        ("{}", "either lines or rules"),
        ('{"lines": [{"say": ""}], "rules": [{"when": "", "do": {"say": ""}}]}', "either lines or rules"),
        ('{"rules": [{"when": "(", "do": {"say": ""}}]}', "not a regular expression"),
        ('{"lines": [{"shout": ""}]}', "lines"),
    ],
)
def test_a_bad_script_is_refused_with_its_name(tmp_path, content, message):
    path = tmp_path / "script.json"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(PolicyUnavailable, match=f"(?s)script.json.*{message}|{message}"):
        Script.read(path)
