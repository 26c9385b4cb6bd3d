"""Nothing that an agent writes may control the terminal of the person who reads it."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.client.screen.safe import one_line, safe

REORDERING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
"""Bidirectional classes of the Unicode standard that change the order of other characters."""


def controls(text: str) -> list[str]:
    return [
        c
        for c in text
        if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(c) in REORDERING
    ]


@given(st.text(st.characters(codec=None)))
def test_only_line_feeds_are_left_of_what_controls(text: str) -> None:
    assert set(controls(safe(text))) <= {"\n"}
    assert controls(one_line(text)) == []


@given(st.text(st.characters(categories=("L", "N", "P", "S"))))
def test_what_can_be_read_stays_as_it_is(text: str) -> None:
    assert safe(text) == text


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[2J\x1b]0;owned\x07", r"\x1b[2J\x1b]0;owned\x07"),
        ("done\rfailed", r"done\x0dfailed"),
        ("a\x9b31mred", r"a\x9b31mred"),
        ("user\u202etxt.exe", r"user\u202etxt.exe"),
        ("a\r\nb", "a\nb"),
        ("a\tb", "a   b"),
        ("\ud800", r"\ud800"),
    ],
)
def test_controls_are_spelled_out(hostile: str, shown: str) -> None:
    assert safe(hostile) == shown


def test_one_line_is_one_line() -> None:
    assert one_line("  for x in y:\n      print(x)\n") == "for x in y: ⏎ print(x)"
    assert one_line("x" * 100, limit=10) == "x" * 10
