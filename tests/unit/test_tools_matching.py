"""Regular expressions with a time limit."""

import re
import time

import pytest

from longstride.tools.matching import bounded_match


def test_the_whole_text_must_match() -> None:
    assert bounded_match(r"\d+", "42")
    assert not bounded_match(r"\d+", "42 apples")
    assert bounded_match("ü.*\n", "ünï\n")


def test_a_bad_pattern_is_said() -> None:
    with pytest.raises(re.error, match="unterminated"):
        bounded_match("(", "x")


def test_a_catastrophic_pattern_is_given_up() -> None:
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        bounded_match(r"(a+)+b", "a" * 64, seconds=0.5)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("pattern", ["a{99999999999999999999}", "(" * 3000 + "a" + ")" * 3000, "("])
def test_a_pattern_that_breaks_the_matcher_is_none(pattern: str) -> None:
    """The author's, who is told: it must not look like a broken executor."""
    with pytest.raises(re.error):
        bounded_match(pattern, "a")
