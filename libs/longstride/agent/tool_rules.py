"""Whether a call is within the rules on tools: a function of the action, the rules and how often the tool was called."""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from longstride.agent.argument_paths import astray
from longstride.agent.patterns import InvalidPattern, path, regex, values_at
from longstride.agent.spellings import spellings
from longstride.contracts.v1.action import Action
from longstride.contracts.v1.tool_rules import ApprovalNeeded, RateLimit, ToolRules

Schemas = Mapping[str, Mapping[str, Any]]
"""Tool → JSON Schema of its arguments."""
NO_SCHEMAS: Schemas = {}
NO_LINKS: Mapping[str, str] = {}
MOST_INSTRUCTIONS = 2000
"""Of RE2, in an approval's pattern: each may be visited for each character of what an agent writes."""
MOST_OF_REDACTIONS = 20_000
"""The same of a redaction's: a token of three parts with a thousand characters each has 15,000."""
ANYTHING = ToolRules()
"""What holds where nobody has set rules."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """Go on."""


@dataclass(frozen=True, slots=True)
class Denied:
    """The call is not carried out; the agent is told why."""

    reason: str


@dataclass(frozen=True, slots=True)
class NeedsApproval:
    """A person decides."""

    question: str


Ruling = Allowed | Denied | NeedsApproval


def rule(action: Action, rules: ToolRules, calls: int, links: Mapping[str, str] = NO_LINKS) -> Ruling:
    """What the rules say of an action.

    Args:
        action: what the policy asked for.
        rules: those of the task.
        calls: of the same tool by the tenant's tasks in the last minute; looked at only where there is a rate limit.
        links: of the task's environment: other names of its files.
    """
    if rules.tools is not None and action.tool not in rules.tools:
        return Denied(f"the rules do not allow {action.tool}; the tools are {', '.join(rules.tools)}")
    limit = rate_limit(action.tool, rules)
    if limit and calls >= limit.per_minute:
        return Denied(f"{action.tool} may be called {limit.per_minute} times a minute by all tasks together, and was")
    question = next((question_of(need) for need in rules.approvals if fits(need, action, links)), None)
    return NeedsApproval(question) if question else Allowed()


def rate_limit(tool: str, rules: ToolRules) -> RateLimit | None:
    """The rate limit of a tool: the lowest, where it has several."""
    limits = [limit for limit in rules.rates if limit.tool == tool]
    return min(limits, key=lambda limit: limit.per_minute, default=None)


def fits(need: ApprovalNeeded, action: Action, links: Mapping[str, str] = NO_LINKS) -> bool:
    """Whether the rule is about this call, under whatever name it has its file or address. Arguments that cannot be looked
    through are."""
    if need.tool != action.tool:
        return False
    if need.path is None and need.pattern is None:
        return True
    found = values_at(need.path or "$", action.arguments)
    if found is None or need.pattern is None:
        return found is None or bool(found)
    pattern = regex(need.pattern)
    return any(pattern.search(text) for value in found for text in spellings(_text(value), links))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def question_of(need: ApprovalNeeded) -> str:
    """What a person is asked."""
    where = f" with {need.path}" if need.path else ""
    what = f" like {need.pattern}" if need.pattern else ""
    return need.question or f"the rules want a person to approve {need.tool}{where}{what}"


def offered(asked: tuple[str, ...] | None, rules: ToolRules) -> tuple[str, ...]:
    """The tools that a policy is shown and an executor lets through: those that both the task and the rules allow.

    Empty is all of them, as in the commands that carry it.
    """
    if rules.tools is None:
        return asked or ()
    return tuple(name for name in asked or rules.tools if name in rules.tools) or ("submit",)


def faults(rules: ToolRules, tools: Collection[str], schemas: Schemas = NO_SCHEMAS) -> Iterator[str]:
    """Why the rules cannot hold: a sentence each.

    Args:
        rules: what somebody wants.
        tools: the names there are.
        schemas: of their arguments, where they are known: a path that leads to none of them would let every call through.
    """
    if rules.tools is not None and "submit" not in rules.tools:
        yield "tools: without submit no task could ever be handed in; add it"
    named = [("tools", name) for name in rules.tools or ()]
    named += [(f"approvals.{i}.tool", need.tool) for i, need in enumerate(rules.approvals)]
    named += [(f"rates.{i}.tool", limit.tool) for i, limit in enumerate(rules.rates)]
    known = ", ".join(tools)
    yield from (
        f"{where}: there is no tool {name!r}; the tools are {known}" for where, name in named if name not in tools
    )
    for i, need in enumerate(rules.approvals):
        yield from _pattern_faults(f"approvals.{i}", need.path, need.pattern)
        yield from _path_faults(f"approvals.{i}.path", need, schemas)
    for i, redaction in enumerate(rules.redactions):
        yield from _pattern_faults(f"redactions.{i}", None, redaction.pattern, may_be_empty=False)


def too_large(rules: ToolRules) -> Iterator[str]:
    """Which patterns cost more than one that somebody sets may: a sentence each. Rules that are in force are not asked."""
    patterns = [(f"approvals.{i}", need.pattern, MOST_INSTRUCTIONS) for i, need in enumerate(rules.approvals)]
    patterns += [(f"redactions.{i}", out.pattern, MOST_OF_REDACTIONS) for i, out in enumerate(rules.redactions)]
    for where, pattern, most in patterns:
        with suppress(InvalidPattern):  # a fault
            if pattern is not None and (size := regex(pattern).programsize) > most:
                yield f"{where}: {pattern!r} is too large: RE2 makes {size} instructions of it, {most} are taken"


def _path_faults(where: str, need: ApprovalNeeded, schemas: Schemas) -> Iterator[str]:
    if need.path is None or need.tool not in schemas:
        return
    with suppress(InvalidPattern):  # told of already
        if why := astray(need.path, schemas[need.tool]):
            yield f"{where}: {need.path!r} finds nothing in the arguments of {need.tool}: {why}"


def _pattern_faults(where: str, at: str | None, pattern: str | None, may_be_empty: bool = True) -> Iterator[str]:
    try:
        if at is not None:
            path(at)
        if pattern is not None and regex(pattern).search("") and not may_be_empty:
            yield f"{where}: {pattern!r} is found in no text at all, and so everywhere; make it need a character"
    except InvalidPattern as fault:
        yield f"{where}: {fault}"
