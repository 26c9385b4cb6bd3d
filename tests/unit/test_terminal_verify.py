"""From what a test script leaves to a score."""

from pathlib import Path

import pytest

from longstride.agent.checks import judge_command
from longstride.client.terminal.verify import reward, score_line
from longstride.contracts.v1.check import CommandCheck


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"reward.txt": "1\n"}, 1.0),
        ({"reward.txt": " 0.25"}, 0.25),
        ({"reward.json": '{"reward": 0.5, "style": 1}'}, 0.5),
        ({"reward.json": "0.75"}, 0.75),
        ({"reward.json": '{"correct": 1, "fast": 0.5}'}, 0.75),
        ({"reward.json": '{"reward": true}'}, 1.0),
        ({"reward.json": '{"reward": 0}', "reward.txt": "1"}, 0.0),
    ],
)
def test_a_reward_is_read_from_either_file(tmp_path: Path, files: dict[str, str], expected: float | None) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert reward(tmp_path) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("reward.txt", ""),
        ("reward.txt", "passed"),
        ("reward.txt", "nan"),
        ("reward.txt", "5"),
        ("reward.txt", "-1"),
        ("reward.json", "{}"),
        ("reward.json", '{"reward": null}'),
        ("reward.json", "1e999"),
        ("reward.json", "[1]"),
        ("reward.json", "[" * 100_000),
    ],
)
def test_what_is_no_reward_is_said(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=name):
        reward(tmp_path)


@pytest.mark.parametrize(
    ("value", "passed", "score"),
    [
        (1, True, 1.0),
        (1.5, True, 1.0),
        (0.9999999, False, 0.999999),
        (0.5, False, 0.5),
        (0, False, 0.0),
        (-2, False, 0.0),
    ],
)
def test_a_score_line_is_read_back_by_the_check(value: float, passed: bool, score: float) -> None:
    result = judge_command(CommandCheck(run="x"), 0 if value >= 1 else 1, f"noise\n{score_line(value)}\n", "")
    assert (result.passed, result.score) == (passed, score)
