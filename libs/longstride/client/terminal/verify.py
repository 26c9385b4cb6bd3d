"""Runs inside the sandbox, as a task's check: its test script, then the reward it wrote as a score. Standard library alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

TESTS, LOGS = Path("/tests"), Path("/logs")
NOT_FOUND = 127


def reward(verifier: Path) -> float | None:
    """What ``reward.json`` or ``reward.txt`` says, in this order; ``None`` without either.

    Raises:
        ValueError: it says something else than a number from 0 to 1.
    """
    for name, read in (("reward.json", _of_json), ("reward.txt", float)):
        file = verifier / name
        if file.exists():
            try:
                value = float(read(file.read_text()))
            except (ValueError, TypeError, RecursionError) as error:
                raise ValueError(f"{name} holds no reward: {error}") from error
            if not 0 <= value <= 1:  # nor is NaN
                raise ValueError(f"{name} holds {value}, which is no reward: 0 to 1")
            return value
    return None


def _of_json(text: str) -> float:
    """A number, or an object: its ``reward``, or its only value, or the mean of its values."""
    said = json.loads(text)
    if not isinstance(said, dict):
        return float(said)
    if "reward" in said:
        return float(said["reward"])
    if not said:
        raise ValueError("an empty object")
    return sum(float(value) for value in said.values()) / len(said)


def score_line(value: float) -> str:
    """``score=…`` as a command check reads it; only a full reward is 1."""
    return f"score={1 if value >= 1 else max(0.0, min(value, 0.999999)):.6g}"


def run(script: Path) -> int:
    """The script's exit code; it is run as its first line says."""
    starts = script.read_bytes()[:2]
    argv = [os.fspath(script)] if starts == b"#!" else ["/bin/sh", os.fspath(script)]
    try:
        return subprocess.run(argv, check=False, env={**os.environ, "TEST_DIR": os.fspath(TESTS)}).returncode
    except FileNotFoundError:
        interpreter = script.read_text(errors="replace").splitlines()[0].removeprefix("#!").split()[0]
        name = interpreter.rpartition("/")[2]
        print(f"sh: 1: {name}: not found", file=sys.stderr)  # noqa: T201
        return NOT_FOUND


def main(script: str) -> int:
    """Run it, and say what came of it."""
    for folder in ("verifier", "agent", "artifacts"):
        (LOGS.resolve() / folder).mkdir(parents=True, exist_ok=True)
    code = run(TESTS / script)
    try:
        value = reward(LOGS / "verifier")
    except ValueError as error:
        print(f"{script}: {error}")  # noqa: T201
        return 1
    if value is None:
        return code if 0 <= code <= 255 else 1
    sys.stdout.flush()
    print(score_line(value))  # noqa: T201
    return 0 if value >= 1 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
