"""What the policy asked for, and what came back."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue, StringConstraints

from longstride.contracts.artifact import ArtifactRef, NamedArtifact
from longstride.contracts.model import Contract, Text, storable

ToolName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]


class Action(Contract):
    """One tool call, chosen by the policy. On the policy's side it is the JSON object
    ``{"thought": …, "plan": […], "tool": …, "arguments": {…}}``, the first two optional."""

    tool: ToolName
    arguments: Annotated[dict[str, JsonValue], BeforeValidator(storable)] = {}
    thought: Text | None = None
    """Why, in the policy's words."""
    plan: tuple[Text, ...] | None = None
    """The new plan, when the policy revises it."""


class ToolSpec(Contract):
    """A tool as a policy sees it, in OpenAI's function style."""

    name: ToolName
    description: str
    parameters: dict[str, Any]
    """JSON Schema (2020-12) of the arguments object."""


IdempotencyClass = Literal["pure", "keyed", "unsafe"]
"""``pure``: no effect outside the workspace. ``keyed``: safe to repeat under one key. ``unsafe``: after a crash a person decides."""

ObservationStatus = Literal["ok", "failed", "timeout", "limit", "denied", "invalid"]
"""``failed``: the tool ran and reported an error. ``limit``: a sandbox limit stopped it. ``denied``: policy or approval.
``invalid``: unknown tool or arguments that do not fit its schema."""


class Observation(Contract):
    """What the agent is told about its action."""

    status: ObservationStatus
    text: Annotated[Text, StringConstraints(max_length=16_384)]
    """Output as the agent sees it; longer output keeps its head and tail."""
    exit_code: int | None = None
    full: ArtifactRef | None = None
    """All of the output, when ``text`` is a part."""
    limit: str | None = None
    """Which limit was hit, e.g. ``memory_mb=512``, or ``limits.cpu_s=120`` for a budget of the whole task."""


class Usage(Contract):
    """What a call cost. All counts are of that call alone."""

    input_tokens: Annotated[int, Field(ge=0)] = 0
    output_tokens: Annotated[int, Field(ge=0)] = 0
    cost_usd: Annotated[float, Field(ge=0)] = 0.0
    wall_ms: Annotated[float, Field(ge=0)] = 0.0
    cpu_ms: Annotated[float, Field(ge=0)] = 0.0
    max_memory_mb: Annotated[float, Field(ge=0)] = 0.0
    output_bytes: Annotated[int, Field(ge=0)] = 0
    """Of standard output and error, the dropped ones included."""
    sent_bytes: Annotated[int, Field(ge=0)] = 0
    """Over the network, like those below."""
    received_bytes: Annotated[int, Field(ge=0)] = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=self.cost_usd + other.cost_usd,
            wall_ms=self.wall_ms + other.wall_ms,
            cpu_ms=self.cpu_ms + other.cpu_ms,
            max_memory_mb=max(self.max_memory_mb, other.max_memory_mb),
            output_bytes=self.output_bytes + other.output_bytes,
            sent_bytes=self.sent_bytes + other.sent_bytes,
            received_bytes=self.received_bytes + other.received_bytes,
        )

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens


class CheckResult(Contract):
    """What one check said of a submission."""

    name: str
    passed: bool
    score: Annotated[float, Field(ge=0, le=1)]
    """Partial credit; 1.0 where the check passed."""
    weight: Annotated[float, Field(ge=0)] = 1.0
    detail: Annotated[Text, StringConstraints(max_length=4096)] = ""
    """Why it failed, as the agent may read it."""
    error: Text | None = None
    """Set when the check could not run: then there is no verdict and no reward."""


__all__ = [
    "Action",
    "CheckResult",
    "IdempotencyClass",
    "NamedArtifact",
    "Observation",
    "ObservationStatus",
    "ToolName",
    "ToolSpec",
    "Usage",
]
