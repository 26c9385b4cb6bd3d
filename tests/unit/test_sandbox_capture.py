"""Output is kept in bounded memory."""

import random

import pytest

from longstride.sandbox.capture import Capture


def captured(limit: int, *chunks: bytes) -> bytes:
    capture = Capture(limit)
    for chunk in chunks:
        capture.feed(chunk)
    return capture.bytes()


def test_output_within_the_limit_is_whole() -> None:
    assert captured(10, b"01234", b"56789") == b"0123456789"


def test_longer_output_keeps_its_head_and_its_tail() -> None:
    assert captured(10, b"abcdefghijklmnopqrstuvwxyz") == b"abcde\n[16 bytes of output were dropped here]\nvwxyz"


@pytest.mark.parametrize("seed", range(20))
def test_how_output_arrives_does_not_matter(seed: int) -> None:
    rng = random.Random(seed)
    limit = rng.randrange(2, 200)
    output = rng.randbytes(rng.randrange(0, 1000))
    chunks, left = [], output
    while left:
        size = rng.randrange(1, 50)
        chunks.append(left[:size])
        left = left[size:]
    assert captured(limit, *chunks) == captured(limit, output)


def test_endless_output_does_not_grow() -> None:
    capture = Capture(1000)
    for _ in range(10_000):
        capture.feed(b"x" * 4096)
    held = len(capture._head) + sum(map(len, capture._tail))
    assert held <= 1000 + 4096
    assert capture.total == 40_960_000
    assert capture.full
