import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contracts.v1.action import ToolSpec
from longstride.contracts.v1.context import Message
from longstride.policies.base import ToolCall
from longstride.policies.chat import function_messages, function_schemas, text_messages
from longstride.policies.reply import BrokenReply, Reply
from longstride.policies.sse import EventReader

SHELL = ToolSpec(name="shell", description="Run it.", parameters={"type": "object", "properties": {}})
CALL = '{"thought": "look", "tool": "shell", "arguments": {"command": "ls"}}'
TALK = [
    Message(role="system", content="rules"),
    Message(role="user", content="what?"),
    Message(role="assistant", content=CALL),
    Message(role="tool", content="a.csv"),
    Message(role="user", content="hurry"),
    Message(role="assistant", content="hm"),
    Message(role="tool", content="not an action"),
]


def test_as_text_roles_alternate_and_the_tools_are_described():
    chat = text_messages(TALK, [SHELL])
    assert [m["role"] for m in chat] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert chat[0]["content"].startswith("rules\n\nThe tools:\n- shell: Run it. Arguments: {")
    assert chat[2]["content"] == CALL
    assert chat[3]["content"] == "a.csv\n\nhurry"


def test_as_functions_each_observation_answers_its_call():
    chat = function_messages(TALK)
    assert [m["role"] for m in chat] == ["system", "user", "assistant", "tool", "user", "assistant", "user"]
    call = chat[2]["tool_calls"][0]
    assert call["function"]["name"] == "shell"
    assert json.loads(call["function"]["arguments"]) == {"command": "ls"}
    assert chat[2]["content"] == "look"
    assert chat[3] == {"role": "tool", "tool_call_id": call["id"], "content": "a.csv"}
    assert chat[5] == {"role": "assistant", "content": "hm"}


def test_a_conversation_without_system_prompt_gets_one_for_its_tools():
    assert text_messages(TALK[1:2], [SHELL])[0]["role"] == "system"
    assert text_messages(TALK[1:2], []) == [{"role": "user", "content": "what?"}]


def test_tools_are_openais_functions():
    assert function_schemas([SHELL]) == [
        {
            "type": "function",
            "function": {
                "name": "shell",
                "description": "Run it.",
                "parameters": {"type": "object", "properties": {}},
            },
        }
    ]


EVENTS = ["one", "zwei\nzeilen", "é€😀", "[DONE]"]
WIRE = "\ufeff: comment\r\n\r\nevent: x\r\nid: 7\r\ndata: one\r\n\r\ndata:zwei\ndata: zeilen\n\ndata: é€😀\r\rdata: [DONE]\n\ndata: cut"


@given(st.lists(st.integers(0, len(WIRE.encode())), max_size=30))
@settings(deadline=None)
def test_events_are_the_same_wherever_the_bytes_are_cut(cuts):
    wire, reader, events = WIRE.encode(), EventReader(), []
    edges = [0, *sorted(cuts), len(wire)]
    for start, end in itertools.pairwise(edges):
        events += reader.feed(wire[start:end])
    assert events == EVENTS


def delta(finish: str | None = None, **fields) -> dict:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def test_a_tool_call_is_put_together_from_its_pieces():
    reply = Reply()
    reply.add(delta(role="assistant", content=None))
    reply.add(delta(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "shell", "arguments": ""}}]))
    reply.add(delta(tool_calls=[{"index": 0, "function": {"arguments": '{"comm'}}]))
    reply.add(delta(tool_calls=[{"index": 0, "function": {"arguments": 'and": "ls"}'}}]))
    reply.add(delta("tool_calls"))
    reply.add({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}})
    assert reply.checked().answer() == ("", ToolCall("shell", '{"command": "ls"}'))
    assert (reply.finish_reason, reply.usage) == ("tool_calls", (9, 4))


def test_two_tool_calls_are_not_one_action():
    reply = Reply()
    for index in (0, 1):
        reply.add(delta(tool_calls=[{"index": index, "function": {"name": "shell", "arguments": "{}"}}]))
    assert reply.answer() == ('{"tool": "shell", "arguments": {}}\n{"tool": "shell", "arguments": {}}', None)


def test_ids_and_logprobs_are_collected():
    reply = Reply()
    reply.add({"prompt_token_ids": [1, 2], **delta(content="")})
    choice = {
        "delta": {"content": "ab"},
        "token_ids": [5, 6],
        "logprobs": {"content": [{"logprob": -1}, {"logprob": -2}]},
    }
    reply.add({"choices": [choice]})
    assert (reply.prompt_ids, reply.output_ids, reply.logprobs) == ([1, 2], [5, 6], [-1.0, -2.0])


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        ({"error": {"message": "out of memory", "code": 500}}, "broke off.*out of memory"),
        ({"choices": "none"}, "choices that is no list"),
        ({"choices": [7]}, "no chat completion chunk"),
        ({"choices": [{"delta": {"tool_calls": [{"index": "x"}]}}]}, "no chat completion chunk"),
        ({"choices": [], "usage": {"prompt_tokens": 1}}, "no chat completion chunk"),
    ],
)
def test_a_chunk_of_another_shape_is_an_error(chunk, message):
    with pytest.raises(BrokenReply, match=message):
        Reply().add(chunk)


def test_a_stream_that_ends_early_is_an_error():
    reply = Reply()
    reply.add(delta(content="so far"))
    with pytest.raises(BrokenReply, match="broke off after 6 characters"):
        reply.checked()
