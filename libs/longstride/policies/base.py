"""The port to whoever thinks: a conversation goes in, one answer comes out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from longstride.contracts.v1.action import ToolSpec, Usage
from longstride.contracts.v1.commands import Sampling
from longstride.contracts.v1.context import Message
from longstride.contracts.v1.tokens import TokenRecord


@dataclass(frozen=True)
class Turn:
    """A message and, where a policy with tokens wrote it, its record."""

    message: Message
    record: TokenRecord | None = None
    """A policy builds its prompt from the record's ``output_ids``, never from re-tokenized text."""


@dataclass(frozen=True)
class ToolCall:
    """A tool call in a field of its own, as servers with function calling give it."""

    name: str
    arguments: str
    """JSON as the model wrote it: it may be broken."""


@dataclass(frozen=True)
class Generation:
    """One answer."""

    text: str
    """What the policy wrote; beside a tool call, its thought."""
    policy: str
    policy_version: int | None
    tool_call: ToolCall | None = None
    record: TokenRecord | None = None
    """With ``prefix`` left ``None`` and ``prompt_ids`` whole; ``turn.answer`` chains it to the record before."""
    usage: Usage = field(default_factory=Usage)
    finish_reason: str = "stop"
    """``stop``, ``length``, ``tool_calls`` or ``content_filter``."""


class Policy(Protocol):
    """Something that answers. Calls may come from several threads at once."""

    @property
    def name(self) -> str:
        """As in ``Generate.policy``, without a version: ``builtin``, ``remote:http://…``."""
        ...

    @property
    def version(self) -> int | None:
        """The version of its weights; ``None`` where nobody counts."""
        ...

    @property
    def context_window(self) -> int:
        """Tokens it can read and write in one call."""
        ...

    def generate(
        self, turns: Sequence[Turn], tools: Sequence[ToolSpec], sampling: Sampling, timeout_s: float
    ) -> Generation:
        """Answer.

        Args:
            turns: the conversation, oldest first; the last is not the policy's own.
            tools: what it may call.
            sampling: how to sample.
            timeout_s: seconds from now; the call ends by then, one way or the other.

        Raises:
            PolicyTimeout: no answer in time.
            PolicyUnavailable: no answer at all; ``retryable`` says whether another try may help.
            ContextOverflow: the conversation is longer than the window.
        """
        ...


class PolicyError(Exception):
    """The policy gave no answer."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable
        """Whether the same call may succeed later."""

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), str(self), self.retryable)


class PolicyUnavailable(PolicyError):
    """It cannot be reached, refuses, or broke."""


class PolicyTimeout(PolicyError):
    """It did not answer in time."""


class ContextOverflow(PolicyError):
    """The conversation does not fit its window."""


def _rebuild(kind: type[PolicyError], message: str, retryable: bool) -> PolicyError:
    return kind(message, retryable=retryable)
