"""The policy's context: an append-only list of messages, chained so that each step carries only what is new."""

from typing import Annotated, Literal

from pydantic import Field

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.model import Contract

Role = Literal["system", "user", "assistant", "tool"]


class Message(Contract):
    """One turn of the conversation between planner and policy."""

    role: Role
    content: str
    tokens: ArtifactRef | None = None
    """For ``assistant``: the token record that was generated. Prompts are built from its ids, never from re-tokenized text."""
    step: int | None = None
    """The step that made it; system and instruction have none."""


class ContextSegment(Contract):
    """A sealed run of messages, stored as an object; ``parent`` holds what came before."""

    version: Literal[1] = 1
    parent: ArtifactRef | None = None
    messages: tuple[Message, ...]


class ContextHead(Contract):
    """What a model call is shown: the sealed chain, oldest first, then the tail."""

    parent: ArtifactRef | None = None
    """The last sealed ``ContextSegment``; ``None`` when everything is in ``tail``."""
    tail: tuple[Message, ...] = ()
    """Messages since the last seal."""
    messages: Annotated[int, Field(ge=0)] = 0
    """How many messages the whole context holds."""
