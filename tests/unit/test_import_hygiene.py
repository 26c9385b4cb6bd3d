"""What is not needed is not loaded: the help answers at once, and the client needs no more than pika."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from longstride.tools.names import BUILTIN
from longstride.tools.registry import builtin_tools

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


GATE = """
import sys
class Gate:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in known and not top.startswith("_"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
known = {"longstride", *sys.stdlib_module_names, *sys.argv.pop(1).split(",")}
sys.meta_path.insert(0, Gate())
"""
PYDANTIC = ("pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection")


def run_with(packages: tuple[str, ...], code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` where nothing but these packages is installed."""
    program = [sys.executable, "-c", GATE + code, ",".join(packages), *arguments]
    return subprocess.run(program, capture_output=True, text=True, timeout=60)


def test_a_task_is_checked_and_published_with_pika_and_pydantic_alone() -> None:
    code = """
from longstride.client import sdk
try:
    sdk.Client.submit(None, sdk.SubmitTask(instruction="x", tools=("fly", "shell", "a__b")))
except sdk.UsageProblem as problem:
    print(problem)
try:
    sdk.Client("amqp://localhost:1/", patience_s=0)
except sdk.Unreachable:
    print("unreachable")
"""
    result = run_with(("pika", *PYDANTIC), code)
    assert result.stderr == ""
    assert result.stdout.startswith("not a task: there is no tool 'fly'; the tools are shell, ")
    assert result.stdout.endswith("unreachable\n")


PLAIN_CLIENT = (
    *("pika", *PYDANTIC, "pydantic_settings", "dotenv", "packaging"),
    *("typer", "annotated_doc", "click", "shellingham", "rich", "pygments", "markdown_it", "mdurl"),
)


@pytest.mark.parametrize(
    "arguments",
    [
        ("tasks",),
        ("tasks", "--json"),
        ("run", "Count."),
        ("rules", "show"),
        ("mcp", "add", "x", "--", "y"),
    ],
)
def test_a_command_whose_packages_are_missing_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("LONGSTRIDE_HOME", str(tmp_path))
    code = "from longstride.client.main import main\nmain()"
    result = run_with(PLAIN_CLIENT, code, *arguments)
    assert result.returncode == 1
    assert re.search(r"the package \w+ is not installed: pip install 'longstride\[services\]'", result.stderr)
    assert "Traceback" not in result.stderr


def test_the_names_of_tools_are_those_of_the_registry() -> None:
    assert builtin_tools().names == BUILTIN


@pytest.mark.parametrize("service", ["planner", "telemetry", "tool_executor", "model_worker", "embedded"])
def test_a_service_loads_only_what_all_its_settings_need(service: str) -> None:
    """Migrations, a collector, a page for Prometheus, S3 and weights are for starts that have them."""
    module = f"services.{service}.{'__main__' if service == 'embedded' else 'main'}"
    unused = ("torch", "transformers", "alembic", "prometheus_client", "opentelemetry.exporter", "minio", "docker")
    assert loaded_by(f"import {module}", unused) == []


def test_no_command_loads_a_model_library_before_it_is_needed() -> None:
    code = "from longstride.client.application import COMMANDS, load\nfor entry in COMMANDS: load(entry)"
    assert loaded_by(code, ("torch", "transformers", "celery")) == []


@pytest.mark.parametrize(
    "program", ["import services", "import longstride.client.main as m; m.sys.argv[1:] = ['--version']; m.main()"]
)
def test_a_program_collects_seldom_while_it_loads(program: str) -> None:
    told = "import atexit, gc; atexit.register(lambda: print(gc.get_threshold() > (700, 10, 10)));"
    ran = subprocess.run([sys.executable, "-c", f"{told} {program}"], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "True"
