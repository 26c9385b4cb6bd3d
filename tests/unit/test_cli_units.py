"""Numbers as people read them."""

from datetime import UTC, datetime, timedelta

import pytest

from longstride.client.screen import units

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, ""), (0.0, "0.00 s"), (9.99, "9.99 s"), (59.4, "59 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")],
)
def test_seconds(value: float | None, shown: str) -> None:
    assert units.seconds(value) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 * 1024**2, "3.0 MiB"), (1024**5, "1024.0 TiB")],
)
def test_sizes(count: int, shown: str) -> None:
    assert units.size(count) == shown


@pytest.mark.parametrize(
    ("passed", "shown"), [(-3, "0 s"), (5, "5 s"), (125, "2 min"), (10_800, "3 h"), (400_000, "5 d")]
)
def test_ages(passed: float, shown: str) -> None:
    assert units.ago(NOW - timedelta(seconds=passed), NOW) == shown


def test_no_verdict_is_not_a_zero() -> None:
    assert (units.reward(None), units.reward(0.0)) == ("–", "0.00")
