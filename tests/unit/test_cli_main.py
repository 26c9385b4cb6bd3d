"""The program: its table of commands, exit codes, and where it says what."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from longstride.client.main import COMMANDS, load, overview

NOWHERE = "amqp://guest:guest@127.0.0.1:9/%2F"


def longstride(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LONGSTRIDE_")}
    return subprocess.run(
        [sys.executable, "-m", "longstride.client.main", *arguments],
        env={**clean, "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_help_lists_every_command_and_exit_code() -> None:
    told = longstride("--help")
    assert told.returncode == 0
    assert [line.split()[0] for line in told.stdout.splitlines() if line.startswith("  ")] == [e.name for e in COMMANDS]
    for code in ("0 done", "1 failed", "2 wrong usage", "3 unreachable", "4 no such", "5 cancelled", "130 Ctrl-C"):
        assert code in told.stdout


def test_the_help_needs_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" in overview()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in overview()


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_every_command_of_the_table_loads_and_has_help(entry) -> None:
    command = load(entry)
    assert command.name == entry.name
    parts = list(command.commands.values()) if hasattr(command, "commands") else [command]
    for part in parts:
        assert part.help
        flags = {flag for parameter in part.params for flag in parameter.opts}
        assert "--json" in flags, f"{entry.name} {part.name} has no --json"


@pytest.mark.parametrize("entry", [e for e in COMMANDS if e.attribute != "app"], ids=lambda entry: entry.name)
def test_every_command_shows_an_example(entry) -> None:
    assert f"longstride {entry.name}" in load(entry).help


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["bogus"], 2, "No such command 'bogus'"),
        (["run"], 2, "INSTRUCTION"),
        (["run", " "], 2, "instruction: "),
        (["run", "x", "--steps", "0"], 2, "limits.steps"),
        (["run", "x", "--steps", "many"], 2, "'--steps'"),
        (["run", "x"], 3, "RabbitMQ at 127.0.0.1:9 does not answer"),
        (["tasks"], 2, "set LONGSTRIDE_DATABASE_URL"),
        (["tasks", "--status", "asleep"], 2, "is none of queued"),
    ],
)
def test_mistakes_are_sentences_on_standard_error_with_an_exit_code(arguments: list[str], code: int, told: str) -> None:
    result = longstride(*arguments, LONGSTRIDE_AMQP_URL=NOWHERE, LONGSTRIDE_PATIENCE_S="0")
    assert (result.returncode, result.stdout) == (code, "")
    assert told in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_a_wrong_environment_is_a_usage_error() -> None:
    result = longstride("tasks", LONGSTRIDE_AMQP_URL="http://localhost", LONGSTRIDE_DATABASE_URL="mysql://x/y")
    assert result.returncode == 2
    assert "must be PostgreSQL" in result.stderr


def test_doctor_says_what_is_missing_and_fails(tmp_path: Path) -> None:
    result = longstride("doctor", "--json", LONGSTRIDE_AMQP_URL=NOWHERE, LONGSTRIDE_HOME=str(tmp_path))
    found = {line["name"]: line for line in map(json.loads, result.stdout.splitlines())}
    assert result.returncode == 1
    assert found["Python"]["state"] == "good"
    assert found["RabbitMQ"]["state"] == "missing"
    assert "LONGSTRIDE_AMQP_URL" in found["RabbitMQ"]["remedy"]
    assert found["PostgreSQL"]["state"] in ("good", "weak")
