"""Checks that need no sandbox: pure verdicts on an answer or a file, and the weighted score of all of them.

A verdict never says what was expected: the agent reads it and may submit again.
"""

import re
from collections.abc import Callable

from longstride.contracts.v1.action import CheckResult
from longstride.contracts.v1.check import AnswerCheck, Check, FileCheck

Matcher = Callable[[str, str], bool]
"""(pattern, text) → whether the whole text matches. Raises ``re.error`` for a bad pattern, ``TimeoutError`` for a slow one."""

SCORE_LINE = re.compile(r"score=(\d+(?:\.\d*)?|\.\d+)\s*")


def full_match(pattern: str, text: str) -> bool:
    """Python's ``re``. A caller that reads untrusted answers passes a matcher with a time limit instead."""
    return re.fullmatch(pattern, text) is not None


def judge_answer(check: AnswerCheck, answer: str, matcher: Matcher = full_match) -> CheckResult:
    """Compare the submitted answer with what the check expects."""
    given = answer.strip()
    if check.equals is not None:
        return verdict(check, given == check.equals.strip(), "the answer is not the expected one")
    if check.number is not None:
        return _judge_number(check, check.number, given)
    assert check.matches is not None
    return _judge_pattern(check, check.matches, given, matcher)


def judge_file(check: FileCheck, text: str | None, unreadable: str = "there is no such file") -> CheckResult:
    """Compare a file's text.

    Args:
        check: what is expected.
        text: the file's content; ``None`` when it cannot be read as text.
        unreadable: why ``text`` is ``None``.
    """
    if text is None:
        return verdict(check, False, f"{check.path}: {unreadable}")
    return verdict(check, _settled(text) == _settled(check.equals), f"{check.path} does not hold the expected text")


def judge_command(check: Check, exit_code: int | None, output: str, detail: str) -> CheckResult:
    """A command's verdict: exit code 0 passes; a last line ``score=0.5`` is its score, and below 1 it has not passed."""
    score = reported_score(output)
    passed = exit_code == 0 and (score is None or score >= 1.0)
    return CheckResult(
        name=check.name,
        passed=passed,
        score=(1.0 if passed else 0.0) if score is None else score,
        weight=check.weight,
        detail="" if passed else detail,
    )


def reported_score(output: str) -> float | None:
    """The number of a last line ``score=…``, held to [0, 1]; ``None`` without one."""
    lines = output.rstrip().rsplit("\n", 1)
    found = SCORE_LINE.fullmatch(lines[-1].strip())
    return min(1.0, float(found[1])) if found else None


def verdict(check: Check, passed: bool, why: str) -> CheckResult:
    """All or nothing; ``why`` is kept for a failure alone."""
    score = 1.0 if passed else 0.0
    return CheckResult(name=check.name, passed=passed, score=score, weight=check.weight, detail="" if passed else why)


def cannot_run(check: Check, why: str) -> CheckResult:
    """No verdict: the check itself is broken, which is not the agent's doing."""
    return CheckResult(name=check.name, passed=False, score=0.0, weight=check.weight, error=why)


def _judge_number(check: AnswerCheck, expected: float, given: str) -> CheckResult:
    try:
        number = float(given)
    except ValueError:
        return verdict(check, False, f"the answer must be one number, got {_quoted(given)}")
    return verdict(check, abs(number - expected) <= check.tolerance, "the number is not the expected one")


def _judge_pattern(check: AnswerCheck, pattern: str, given: str, matcher: Matcher) -> CheckResult:
    try:
        return verdict(check, matcher(pattern, given), "the answer does not have the expected form")
    except re.error as error:
        return cannot_run(check, f"its pattern is not a regular expression: {error}")
    except TimeoutError:
        return verdict(check, False, "the answer could not be matched within the time limit")


def _settled(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").rstrip()


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "…")
