"""Verdicts of checks that need no sandbox."""

import re

import pytest

from longstride.agent.checks import (
    full_match,
    judge_answer,
    judge_command,
    judge_file,
    reported_score,
)
from longstride.contracts.v1.check import AnswerCheck, CommandCheck, FileCheck


@pytest.mark.parametrize(
    ("check", "answer", "passed"),
    [
        (AnswerCheck(equals="Paris"), "  Paris\n", True),
        (AnswerCheck(equals="Paris"), "paris", False),
        (AnswerCheck(equals=""), "   ", True),
        (AnswerCheck(number=42), "42.0000001", True),
        (AnswerCheck(number=42), "42.01", False),
        (AnswerCheck(number=42, tolerance=0.5), "41.5", True),
        (AnswerCheck(number=-1e3), "-1000", True),
        (AnswerCheck(number=42), "nan", False),
        (AnswerCheck(number=42), "inf", False),
        (AnswerCheck(number=42), "the answer is 42", False),
        (AnswerCheck(number=0), "", False),
        (AnswerCheck(matches=r"\d{3}-\d{4}"), "555-0199", True),
        (AnswerCheck(matches=r"\d{3}"), "1234", False),
        (AnswerCheck(matches=r"a|ab"), "ab", True),
    ],
)
def test_an_answer_is_compared_as_the_check_says(check: AnswerCheck, answer: str, passed: bool) -> None:
    result = judge_answer(check, answer)
    assert (result.passed, result.score, result.error) == (passed, float(passed), None)


@pytest.mark.parametrize(
    "check", [AnswerCheck(equals="s3cret"), AnswerCheck(number=31337), AnswerCheck(matches="s3c.*")]
)
def test_a_failure_never_tells_what_was_expected(check: AnswerCheck) -> None:
    detail = judge_answer(check, "wrong").detail
    assert detail
    assert not re.search("s3c|31337", detail)


def test_a_pattern_that_is_none_is_the_checks_fault() -> None:
    result = judge_answer(AnswerCheck(matches="(unclosed"), "anything")
    assert result.error is not None
    assert "regular expression" in result.error


def test_a_match_that_takes_too_long_is_a_failure() -> None:
    def slow(pattern: str, text: str) -> bool:
        raise TimeoutError

    result = judge_answer(AnswerCheck(matches="(a+)+b"), "a" * 40, slow)
    assert (result.passed, result.error) == (False, None)


def test_a_whole_answer_must_match() -> None:
    assert full_match("a.c", "abc")
    assert not full_match("a.c", "abcd")


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ("one\ntwo\n", True),
        ("one\r\ntwo", True),
        ("one\rtwo\n\n  \n", True),
        ("one\n\ntwo\n", False),
        (" one\ntwo\n", False),
        ("", False),
    ],
)
def test_a_file_is_compared_without_regard_to_line_ends(text: str, passed: bool) -> None:
    assert judge_file(FileCheck(path="out.txt", equals="one\ntwo\n"), text).passed is passed


def test_a_missing_file_fails_and_says_which() -> None:
    result = judge_file(FileCheck(path="out.txt", equals="x"), None)
    assert (result.passed, result.score) == (False, 0.0)
    assert result.detail == "out.txt: there is no such file"


@pytest.mark.parametrize(
    ("exit_code", "output", "passed", "score"),
    [
        (0, "", True, 1.0),
        (1, "", False, 0.0),
        (None, "", False, 0.0),
        (1, "7 of 10\nscore=0.7\n", False, 0.7),
        (0, "score=0.5", False, 0.5),
        (0, "score=1", True, 1.0),
        (0, "score=7", True, 1.0),
        (0, "score=0.5\nand then more", True, 1.0),
        (0, "score=-1", True, 1.0),
        (0, "score=nan", True, 1.0),
    ],
)
def test_a_commands_exit_code_and_last_line_are_its_verdict(
    exit_code: int | None, output: str, passed: bool, score: float
) -> None:
    result = judge_command(CommandCheck(run="true"), exit_code, output, "why")
    assert (result.passed, result.score) == (passed, score)
    assert result.detail == ("" if passed else "why")


def test_a_reported_score_is_held_to_one() -> None:
    assert reported_score("score=.25") == 0.25
    assert reported_score("score=12") == 1.0
    assert reported_score("no score") is None
