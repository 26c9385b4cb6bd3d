"""The conversation in the shapes of chat servers."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from longstride.agent.action_format import FormatError, parse
from longstride.contracts.v1.action import Action, ToolSpec
from longstride.contracts.v1.context import Message

Chat = list[dict[str, Any]]


def text_messages(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Chat:
    """Actions as JSON text, observations as the user's turns, the tools described in the system prompt.

    Neighbours of one role are joined, because many chat templates demand that roles alternate.
    """
    chat: Chat = []
    for message in _with_manual(messages, tools):
        role = "user" if message.role == "tool" else message.role
        if chat and chat[-1]["role"] == role:
            chat[-1]["content"] += f"\n\n{message.content}"
        else:
            chat.append({"role": role, "content": message.content})
    return chat


def function_messages(messages: Sequence[Message]) -> Chat:
    """Actions as tool calls, each observation as the answer to its call. An answer that was no action stays text."""
    chat: Chat = []
    open_call: str | None = None
    for number, message in enumerate(messages):
        if message.role == "assistant":
            open_call = f"call_{number}"
            said, called = _said(message, open_call)
            open_call = open_call if called else None
            chat.append(said)
        elif message.role == "tool" and open_call:
            chat.append({"role": "tool", "tool_call_id": open_call, "content": message.content})
            open_call = None
        else:
            chat.append({"role": "user" if message.role == "tool" else message.role, "content": message.content})
    return chat


def function_schemas(tools: Iterable[ToolSpec]) -> Chat:
    """OpenAI's function tools."""
    return [{"type": "function", "function": tool.model_dump()} for tool in tools]


def manual(tools: Iterable[ToolSpec]) -> str:
    """The tools in words, for a model without function calling."""
    lines = [f"- {t.name}: {t.description} Arguments: {json.dumps(t.parameters, sort_keys=True)}" for t in tools]
    return "\n".join(["The tools:", *lines])


def _with_manual(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Sequence[Message]:
    if not tools:
        return messages
    if messages and messages[0].role == "system":
        first = messages[0].model_copy(update={"content": f"{messages[0].content}\n\n{manual(tools)}"})
        return [first, *messages[1:]]
    return [Message(role="system", content=manual(tools)), *messages]


def _said(message: Message, call_id: str) -> tuple[dict[str, Any], bool]:
    """(the assistant's turn, whether it calls a tool)."""
    try:
        action = parse(message.content)
    except FormatError:
        return {"role": "assistant", "content": message.content}, False
    return {"role": "assistant", "content": action.thought, "tool_calls": [_call(action, call_id)]}, True


def _call(action: Action, call_id: str) -> dict[str, Any]:
    arguments = json.dumps(action.arguments, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": action.tool, "arguments": arguments}}
