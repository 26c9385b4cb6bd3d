"""What is not needed is not loaded: the help answers at once, and the client needs no more than pika."""

import json
import subprocess
import sys

import pytest

HEAVY = (
    "torch",
    "sqlalchemy",
    "kombu",
    "celery",
    "pika",
    "opentelemetry.sdk",
    "transformers",
    "psycopg",
    "pydantic",
    "rich",
)
SERVER_SIDE = (
    "torch",
    "sqlalchemy",
    "psycopg",
    "kombu",
    "celery",
    "minio",
    "opentelemetry",
    "transformers",
    "typer",
    "rich",
)


def loaded_by(code: str, of: tuple[str, ...]) -> list[str]:
    """Which of the modules ``of`` are loaded after ``code`` in a fresh interpreter."""
    report = f"import json, sys; sys.stderr.write(json.dumps([m for m in {of!r} if m in sys.modules]))"
    program = f"import sys\ntry:\n{_indented(code)}\nexcept SystemExit: pass\n{report}"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stderr)


def _indented(code: str) -> str:
    return "\n".join(f"    {line}" for line in code.splitlines())


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], []])
def test_the_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = f"sys.argv = ['longstride', *{arguments!r}]\nfrom longstride.client.main import main\nmain()"
    assert loaded_by(code, HEAVY) == []


def test_the_sdk_needs_pika_and_the_contracts_alone() -> None:
    assert loaded_by("import longstride.client.sdk", SERVER_SIDE) == []


def test_no_command_loads_a_model_library_before_it_is_needed() -> None:
    code = "from longstride.client.application import COMMANDS, load\nfor entry in COMMANDS: load(entry)"
    assert loaded_by(code, ("torch", "transformers", "celery")) == []
