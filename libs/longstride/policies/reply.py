"""A chat completion as it grows, chunk by chunk."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from longstride.policies.base import ToolCall


class BrokenReply(ValueError):
    """The server's answer is not a chat completion, or ended early."""


@dataclass
class Reply:
    """What has been read so far."""

    text: str = ""
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    """Index → name and arguments of each tool call."""
    finish_reason: str | None = None
    usage: tuple[int, int] | None = None
    """Tokens read and written."""
    prompt_ids: list[int] = field(default_factory=list)
    output_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    size: int = 0
    """Characters."""

    @classmethod
    def whole(cls, completion: Mapping[str, Any]) -> "Reply":
        """Of a server that does not stream."""
        reply = cls()
        choices = _list(completion, "choices")
        as_chunk = [{**choice, "delta": choice.get("message")} for choice in choices if isinstance(choice, dict)]
        reply.add({**completion, "choices": as_chunk})
        return reply.checked()

    def add(self, chunk: Mapping[str, Any]) -> None:
        """One chunk.

        Raises:
            BrokenReply: it holds an error, or has not the shape of a chunk.
        """
        if chunk.get("error"):
            raise BrokenReply(f"the server broke off: {str(chunk['error'])[:1000]}")
        try:
            self._add(chunk)
        except BrokenReply:
            raise
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise BrokenReply(f"the server sent what is no chat completion chunk: {str(chunk)[:300]}") from error

    def _add(self, chunk: Mapping[str, Any]) -> None:
        usage = chunk.get("usage")
        if usage:
            self.usage = int(usage["prompt_tokens"]), int(usage["completion_tokens"])
        self.prompt_ids += map(int, chunk.get("prompt_token_ids") or ())
        for choice in _list(chunk, "choices")[:1]:
            self._choice(choice)

    def _choice(self, choice: Mapping[str, Any]) -> None:
        delta = choice.get("delta") or {}
        self._write(delta.get("content") or "")
        for call in delta.get("tool_calls") or ():
            self._call(call)
        self.output_ids += map(int, choice.get("token_ids") or ())
        self.logprobs += [float(token["logprob"]) for token in (choice.get("logprobs") or {}).get("content") or ()]
        self.finish_reason = choice.get("finish_reason") or self.finish_reason

    def _write(self, text: str) -> None:
        self.text += text
        self.size += len(text)

    def _call(self, delta: Mapping[str, Any]) -> None:
        function = delta.get("function") or {}
        call = self.calls.setdefault(int(delta.get("index", len(self.calls))), {"name": "", "arguments": ""})
        for key in call:
            part = function.get(key) or ""
            call[key] += part
            self.size += len(part)

    def cut(self) -> "Reply":
        """It is longer than anybody reads."""
        self.finish_reason = "length"
        return self

    def checked(self) -> "Reply":
        """At the end of the stream.

        Raises:
            BrokenReply: no chunk said why it ended, so it was cut off.
        """
        if self.finish_reason is None:
            raise BrokenReply(f"the answer broke off after {self.size} characters, without a finish_reason")
        return self

    def answer(self) -> tuple[str, ToolCall | None]:
        """Text and tool call. Several calls become text that holds them all, which is a format error: one action at a time."""
        calls = [ToolCall(call["name"], call["arguments"]) for _, call in sorted(self.calls.items())]
        if len(calls) > 1:
            return "\n".join([f'{{"tool": "{call.name}", "arguments": {call.arguments}}}' for call in calls]), None
        return self.text, calls[0] if calls else None


def _list(chunk: Mapping[str, Any], key: str) -> list[Any]:
    value = chunk.get(key) or []
    if not isinstance(value, list):
        raise BrokenReply(f"the server sent {key} that is no list: {str(value)[:300]}")
    return value
