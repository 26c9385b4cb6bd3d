"""The text that an agent reads of a tool's output."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.tools.observation import SHOWN, clip, printable


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        (b"plain\n", "plain\n"),
        ("ünïcödé ✓".encode(), "ünïcödé ✓"),
        (b"bad \xff byte", "bad \\xff byte"),
        (b"windows\r\nline\rprogress", "windows\nline\nprogress"),
        (b"\x1b[31mred\x1b[0m \x1b]0;title\x07text", "red text"),
        (b"bell \x07 nul \x00", "bell \\x07 nul \\x00"),
        (b"half \x1b", "half \\x1b"),
        (b"tab\there", "tab\there"),
    ],
)
def test_output_becomes_text(output: bytes, shown: str) -> None:
    assert printable(output) == shown


def test_what_is_not_text_is_described() -> None:
    output = bytes(range(32)) * 100
    assert printable(output) == f"[3200 bytes, most of them not text; they start with {output[:32].hex(' ')}]"


def test_a_text_that_fits_is_whole() -> None:
    text = "x" * SHOWN
    assert clip(text, "") == clip(text, "elsewhere")
    assert clip(text, "").text == text
    assert clip(text, "").left_out == 0


def test_a_longer_text_keeps_whole_lines_at_both_ends_and_says_what_is_missing() -> None:
    lines = [f"line {number}" for number in range(3000)]
    text = "\n".join(lines)
    clipped = clip(text, "KEY")
    head, note, tail = clipped.text.partition(
        f"\n[{clipped.left_out} bytes left out here; all {len(text)} are kept in KEY]\n"
    )
    assert note
    assert head.split("\n") == lines[: head.count("\n") + 1]
    assert tail.split("\n") == lines[-tail.count("\n") - 1 :]
    assert clipped.left_out == len(text) - len(head) - len(tail)
    assert len(tail) > len(head)


def test_one_endless_line_is_cut_too() -> None:
    clipped = clip("é" * 20_000, "KEY")
    assert len(clipped.text.encode()) <= SHOWN
    assert clipped.text.startswith("é")
    assert clipped.text.endswith("é")


def traceback(frames: int) -> str:
    middle = "".join(f'  File "module.py", line {n}, in function_{n}\n    call()\n' for n in range(frames))
    return f"Traceback (most recent call last):\n{middle}ValueError: the end\n"


@pytest.mark.parametrize("frames", [10, 60, 110, 120])
def test_a_traceback_at_the_end_is_whole(frames: int) -> None:
    end = traceback(frames)
    assert len(end) < 7000
    clipped = clip("noise\n" * 5000 + end, "KEY")
    assert clipped.text.endswith("\n" + end)
    assert clipped.text.startswith("noise\n")
    assert len(clipped.text.encode()) <= SHOWN


def test_a_traceback_that_does_not_fit_keeps_its_end() -> None:
    clipped = clip(traceback(500), "KEY")
    assert clipped.text.endswith("ValueError: the end\n")
    assert len(clipped.text.encode()) <= SHOWN


@given(st.text(max_size=200), st.integers(1, 200))
def test_an_observation_never_exceeds_its_size(piece: str, times: int) -> None:
    text = printable((piece * times).encode(errors="surrogatepass"))
    clipped = clip(text, "session/observation/" + "0" * 64)
    assert len(clipped.text.encode()) <= SHOWN
    assert "\x00" not in clipped.text
