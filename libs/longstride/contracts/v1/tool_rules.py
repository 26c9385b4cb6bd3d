"""What the tasks of a tenant and agent definition may do with tools."""

from typing import Annotated

from pydantic import Field, StringConstraints

from longstride.contracts.model import Contract
from longstride.contracts.v1.action import ToolName

Pattern = Annotated[str, StringConstraints(min_length=1, max_length=512)]
"""A regular expression in RE2's syntax: it takes time linear in the text, whatever an agent writes."""
Sentence = Annotated[str, StringConstraints(min_length=1, max_length=512)]


class ApprovalNeeded(Contract):
    """A person decides about the calls that this fits."""

    tool: ToolName
    path: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    """A JSONPath (RFC 9535, without filters) into the arguments, e.g. ``$.command``; ``None``: every call of the tool."""
    pattern: Pattern | None = None
    """Must be found in a value at ``path``; values that are no text are compared as JSON. ``None``: any value there."""
    question: Sentence | None = None
    """What the person is asked; ``None``: a sentence that names the rule."""


class RateLimit(Contract):
    """So often a tenant's tasks together may call a tool, in any sixty seconds."""

    tool: ToolName
    per_minute: Annotated[int, Field(gt=0, le=600)]


class Redaction(Contract):
    """Text that nobody is to see: replaced in observations before they are stored or shown to the model."""

    pattern: Pattern
    replacement: Annotated[str, StringConstraints(max_length=64)] = "[redacted]"
    """Taken as it is: it cannot refer to what was matched."""


class ToolRules(Contract):
    """The rules. None of them allows what the task itself does not."""

    tools: Annotated[tuple[ToolName, ...], Field(min_length=1, max_length=128)] | None = None
    """The tools that may be called; ``None``: all."""
    approvals: Annotated[tuple[ApprovalNeeded, ...], Field(max_length=64)] = ()
    rates: Annotated[tuple[RateLimit, ...], Field(max_length=64)] = ()
    redactions: Annotated[tuple[Redaction, ...], Field(max_length=16)] = ()


class RulesInForce(Contract):
    """The rules that a task was accepted under: they hold for it to its end."""

    version: Annotated[int, Field(ge=1)]
    rules: ToolRules
