"""Taking out of an observation what nobody is to see."""

from collections.abc import Iterable

from longstride.agent.patterns import regex
from longstride.contracts.v1.action import CheckResult
from longstride.contracts.v1.tool_rules import Redaction

DETAIL = 4096
"""Characters of a check's detail."""


def redact(text: str, redactions: Iterable[Redaction], most: int | None = None) -> str:
    """``text`` with every match replaced, rule by rule; with ``most``, cut where that made it longer."""
    for redaction in redactions:
        text = regex(redaction.pattern).sub(lambda _, told=redaction.replacement: told, text)[:most]
    return text


def redact_check(check: CheckResult, redactions: Iterable[Redaction]) -> CheckResult:
    """A check's result, whose detail quotes output."""
    error = check.error and redact(check.error, redactions, DETAIL)
    return check.model_copy(update={"detail": redact(check.detail, redactions, DETAIL), "error": error})
