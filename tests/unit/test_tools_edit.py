"""Edits of text: what fits is done, what does not is refused with what is there instead."""

import difflib
import tracemalloc

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from longstride.sandbox.files import Content
from longstride.tools.edit_file import EditFile, EditFileArguments, EditRefused, _changed, edited
from longstride.tools.lines import count, split, start_of
from longstride.tools.nearest import nearest
from longstride.tools.patching import DiffRefused, patched
from longstride.tools.read_file import ReadFileArguments, _shown
from longstride.tools.search_files import matches
from longstride.tools.tool import InvalidArguments

TEXT = "import os\n\n\ndef area(w, h):\n    return w * h\n\n\ndef edge(w, h):\n    return 2 * (w + h)\n"
LINES = st.lists(st.sampled_from(["", "a", "b", "-- c", "++ d", " e", "@@ f", "\tg"]), max_size=30)


def edit(text: str, **arguments: object) -> str:
    return edited(text, EditFileArguments.model_validate({"path": "a.py", **arguments}))


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        ("one two\n", {"old": "two", "new": "2"}, "one 2\n"),
        ("one one\n", {"old": "one", "new": "1", "every": True}, "1 1\n"),
        ("a\nb\nc\n", {"old": "a\nb\n", "new": ""}, "c\n"),
        ("a\r\nb\r\n", {"old": "a\nb", "new": "x\ny"}, "x\r\ny\r\n"),
        ("a\r\nb\r\n", {"old": "a\r\n", "new": "x\n"}, "x\r\nb\r\n"),
        ("a\r\nb\n", {"old": "b\n", "new": "x\n"}, "a\r\nx\n"),
        ("\udcff a\n", {"old": "a", "new": "b"}, "\udcff b\n"),
        ("a\r\nb\r\nc\r\n", {"diff": "@@ -2 +2 @@\n-b\n+x\n"}, "a\r\nx\r\nc\r\n"),
    ],
)
def test_text_that_is_there_once_is_replaced(text: str, arguments: dict[str, object], expected: str) -> None:
    assert edit(text, **arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"old": "return", "new": "yield"}, "old is in it 2 times, at lines 5, 9: give more of the text around it"),
        (
            {"old": "def area(w,h):", "new": "x"},
            "old is not in it; lines 4 to 4 differ in white space alone:\n    4  def area(w, h):",
        ),
        (
            {"old": "def area(w, d):\n    return w * d", "new": "x"},
            "lines 4 to 5 are the most alike:\n    4  def area(w, h):\n    5      return w * h",
        ),
        ({"old": "0123456789", "new": "x"}, "nothing in it is much like it: read the file again"),
    ],
)
def test_text_that_does_not_fit_is_refused_with_what_is_there(arguments: dict[str, object], why: str) -> None:
    with pytest.raises(EditRefused) as caught:
        edit(TEXT, **arguments)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"old": "a"},
        {"new": "a"},
        {"old": "a", "new": "a"},
        {"old": "", "new": "a"},
        {"old": "a", "new": "b", "diff": "@@ @@\n-a\n+b"},
        {"diff": ""},
    ],
)
def test_there_are_two_ways_to_say_an_edit(arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidArguments):
        EditFile().parse({"path": "a.py", **arguments})


@given(LINES, LINES, st.integers(0, 5))
def test_a_diff_gives_what_it_was_made_from(old: list[str], new: list[str], context: int) -> None:
    """``difflib`` makes the diff; files end in a newline."""
    before, after = "".join(f"{line}\n" for line in old), "".join(f"{line}\n" for line in new)
    assume(before != after)
    diff = "\n".join(difflib.unified_diff(old, new, "a/x", "b/x", lineterm="", n=context))
    assert patched(before, diff) == after


@pytest.mark.parametrize(
    ("diff", "expected"),
    [
        (
            "@@ -50,2 +50,2 @@\n def edge(w, h):\n-    return 2 * (w + h)\n+    return w + h\n",
            TEXT.replace("2 * (w + h)", "w + h"),
        ),
        ("@@ @@\n-import os\n+import re\n", TEXT.replace("os", "re")),
        (
            "--- a/a.py\n+++ b/a.py\n@@ -1,9 +1,1 @@ class X\n import os\n+import re\n\n",
            TEXT.replace("import os\n", "import os\nimport re\n", 1),
        ),
        (
            "@@ -1 +0,0 @@\n-import os\n@@ -9 +8 @@\n-    return 2 * (w + h)\n+    return 0\n",
            TEXT[10:].replace("2 * (w + h)", "0"),
        ),
    ],
)
def test_a_diff_goes_by_its_lines_rather_than_its_numbers(diff: str, expected: str) -> None:
    assert patched(TEXT, diff) == expected


def test_of_several_places_the_nearest_is_changed() -> None:
    assert patched("x\na\nx\nb\nx\n", "@@ -5 +5 @@\n-x\n+y\n") == "x\na\nx\nb\ny\n"


@pytest.mark.parametrize(
    ("diff", "why"),
    [
        ("just words", "there is no hunk in the diff"),
        (
            "@@ -1 +1 @@\n-import sys\n+import re\n",
            "hunk 1: the file has no such lines as its context and removed lines, the first being 'import sys'; lines 1 to 1",
        ),
        ("@@ -1 +1 @@\n import os\n", "hunk 1 changes nothing"),
        ("@@ @@\n     return\n+    x\n", "hunk 1: the file has no such lines"),
        ("@@ @@\n+x\n", "hunk 1 has no line to go by"),
        ("@@ @@\n-\n+x\n", "hunk 1: its lines are there 4 times, from lines 2, 3, 6, 7: name the line"),
        ("@@ -1 +1 @@\n*import os\n", "hunk 1: the line '*import os' starts with neither"),
        ("--- a/a\n+++ b/a\n@@ -1 +1 @@\n-import os\n+x\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-a\n+b\n", "several files"),
    ],
)
def test_a_diff_that_does_not_fit_is_refused(diff: str, why: str) -> None:
    with pytest.raises(DiffRefused) as caught:
        patched(TEXT, diff)
    assert why in str(caught.value)


def test_a_diff_may_take_away_everything_before_it_goes_on() -> None:
    assert patched("b", "@@ -1 +0 @@\n-b\n@@ -1 +1 @@\n+x\n") == "x\n"
    with pytest.raises(DiffRefused, match="hunk 2: the file has no such lines"):
        patched("b", "@@ -1 +0 @@\n-b\n@@ -1 +1 @@\n-b\n+x\n")


def test_lines_that_would_go_before_the_first_go_first() -> None:
    assert patched("a\n", "@@ -7 +7 @@\n+b\n@@ -2 +2 @@\n+c\n") == "c\na\nb\n"


MANY = "ab\n" * 2_000_000
"""What takes the square of its lines to look through takes days."""


def test_a_text_that_is_there_millions_of_times_is_refused() -> None:
    with pytest.raises(EditRefused, match=r"2000000 times, at lines 1, 2, .*, 20: give more"):
        edited(MANY, EditFileArguments(path="f", old="ab", new="cd"))


@pytest.mark.parametrize("end", ["ab", "cd"])
def test_a_hunk_of_thousands_of_lines_is_looked_for_in_millions(end: str) -> None:
    diff = "@@ -1000000 +1000000 @@\n" + " ab\n" * 3000 + f"-{end}\n+new\n"
    if end == "cd":
        with pytest.raises(DiffRefused, match="hunk 1: the file has no such lines"):
            patched(MANY, diff)
    else:
        assert patched(MANY, diff) == "ab\n" * 1_002_999 + "new\n" + "ab\n" * 997_000


def test_more_hunks_than_can_be_looked_for_in_time_are_refused() -> None:
    """Each looks through the whole text: a message has room for thousands, and a file for 16 MiB."""
    with pytest.raises(DiffRefused, match=r"2400 hunks are too many for a text of this size: give at most \d\d in"):
        patched(MANY, "@@ -1 +1 @@\n-ab\n+cd\n" * 2400)


def test_thousands_of_hunks_change_an_ordinary_file() -> None:
    text = "".join(f"line {n}\n" for n in range(1, 2001))
    diff = "".join(f"@@ -{n} +{n} @@\n-line {n}\n+row {n}\n" for n in range(1, 2001))
    assert patched(text, diff) == text.replace("line", "row")


@given(st.text("ab\n"), st.integers(0, 20))
def test_where_a_line_starts(text: str, index: int) -> None:
    lines = text.split("\n")
    assert start_of(text, index) == min(len("".join(f"{line}\n" for line in lines[:index])), len(text))


def test_of_a_file_of_millions_of_lines_the_changed_ones_are_shown() -> None:
    after = MANY[:3_000_000] + "xy\n" + MANY[3_000_000:]
    assert _changed(MANY, after).splitlines()[0] == "1000000  ab"
    assert _changed(MANY, MANY.replace("ab", "cd")).endswith("   12  cd\n    …")


def test_a_part_of_a_file_of_millions_of_lines_is_read_without_its_lines() -> None:
    data = MANY.encode()
    tracemalloc.start()
    try:
        shown = _shown(Content(data, len(data)), ReadFileArguments(path="f", start_line=1_999_999)).output
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert shown == b"ab\nab\n"


ODD = ["a\fb", "c\rd", "e\u2028f", "g\vh", "i\x1cj", "k\x85l", "mn\r"]
"""Lines that have in them what other programs end lines with."""


@pytest.mark.parametrize("odd", ODD, ids=ascii)
def test_every_tool_numbers_the_same_lines(odd: str) -> None:
    """As ``grep -n`` does: a newline ends a line, and nothing else."""
    text = f"{odd}\n" * 3 + "needle in the hay\nlast\n"
    assert split(text) == text.split("\n")[:-1]
    assert count(text) == 5
    changed = text.replace("needle", "noodle")
    assert "    4  noodle in the hay" in _changed(text, changed).split("\n")
    assert (nearest(text, "needle in hay") or "").startswith("lines 4 to 4 ")
    read = _shown(Content(text.encode(), len(text.encode())), ReadFileArguments(path="f", start_line=4, lines=1))
    assert read.output.startswith(b"needle in the hay\n")
    assert patched(text, "@@ -4 +4 @@\n-needle in the hay\n+noodle in the hay\n") == changed
    found = matches(b"\0./f\x004:needle in the hay\n./f\x001:" + odd.encode() + b"\n")
    assert found == [b"f:1:" + odd.removesuffix("\r").encode(), b"f:4:needle in the hay"]


@given(st.text("ab\n\r\f"))
def test_lines_are_as_many_as_are_counted(text: str) -> None:
    lines = split(text)
    assert len(lines) == count(text)
    assert "\n".join(lines) == text.removesuffix("\n")


def test_the_most_alike_lines_of_a_long_text_are_found() -> None:
    text = "".join(f"value_{n} = compute({n})\n" for n in range(3000)) + "the needle in the hay\n"
    assert (
        nearest(text, "the needle in teh hay") == "lines 3001 to 3001 are the most alike:\n 3001  the needle in the hay"
    )
