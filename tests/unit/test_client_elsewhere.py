"""Path settings of a stack that runs in another directory than whoever starts it."""

import os
import subprocess
import sys
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from pydantic_settings import BaseSettings

from longstride.client.elsewhere import LISTS, OTHERS, environment_elsewhere
from longstride.client.embedded_stack import EmbeddedStack
from longstride.client.errors import UsageProblem
from tests.support.small_stack import STACK

ROOT = Path(__file__).parents[2]
HERE = Path("/there/home")


def settings() -> Iterator[type[BaseSettings]]:
    """Every settings class that there is."""
    for base in ("libs", "."):
        for top in ("longstride", "services"):
            for path in sorted((ROOT / base / top).rglob("*.py")):
                if "(BaseSettings)" in path.read_text():
                    module = import_module(".".join(path.relative_to(ROOT / base).with_suffix("").parts))
                    found = [value for value in vars(module).values() if isinstance(value, type)]
                    yield from (
                        kind for kind in found if issubclass(kind, BaseSettings) and kind.__module__ == module.__name__
                    )


def path_settings() -> list[str]:
    """The variables of all their fields that are paths."""
    return sorted(
        {
            f"{kind.model_config['env_prefix']}{name}".upper()
            for kind in settings()
            for name, field in kind.model_fields.items()
            if Path in (field.annotation, *typing.get_args(field.annotation))
        }
    )


def test_there_are_path_settings() -> None:
    assert {"LONGSTRIDE_HOME", "LONGSTRIDE_MCP_FILE", "LONGSTRIDE_TOOL_EXECUTOR_SECRETS_DIR"} <= set(path_settings())


@pytest.mark.parametrize("name", [*path_settings(), *sorted(OTHERS)])
@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("own/x", "/there/home/own/x"),
        ("../x", "/there/home/../x"),
        ("/x", "/x"),
        ("~/x", "/root-of-me/x"),
        ("", ""),
    ],
)
def test_every_path_setting_is_seen_from_where_it_was_set(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, seen: str
) -> None:
    monkeypatch.setenv("HOME", "/root-of-me")
    assert environment_elsewhere({name: value}, HERE) == {name: seen}


@pytest.mark.parametrize("name", sorted(LISTS))
def test_lists_are_seen_path_by_path(name: str) -> None:
    assert environment_elsewhere({name: "libs:/usr/lib:"}, HERE) == {name: f"{HERE}/libs:/usr/lib:{HERE}"}


def test_a_policys_file_too(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text("{}")
    seen = [
        environment_elsewhere({"LONGSTRIDE_MODEL_WORKER_POLICY": name}, tmp_path)["LONGSTRIDE_MODEL_WORKER_POLICY"]
        for name in ("scripted:script.json", "builtin", "remote:http://x/v1")
    ]
    assert seen == [f"scripted:{tmp_path}/script.json", "builtin", "remote:http://x/v1"]
    with pytest.raises(UsageProblem, match="LONGSTRIDE_MODEL_WORKER_POLICY: unknown policy 'gpt-5'"):
        environment_elsewhere({"LONGSTRIDE_MODEL_WORKER_POLICY": "gpt-5"}, tmp_path)


def test_what_is_no_path_stays() -> None:
    told = {"LONGSTRIDE_S3_BUCKET": "files", "LANG": "C.UTF-8", "LONGSTRIDE_PROFILE": "x", "OTHER_DIR": "x"}
    assert environment_elsewhere(told, HERE) == told


def test_the_stack_is_started_with_them(tmp_path: Path) -> None:
    told = "import os, sys; open(sys.argv[-1] + '/seen', 'w').write(os.environ['LONGSTRIDE_MCP_FILE'] + ' ' + os.getcwd());"
    program = (
        "from pathlib import Path; from longstride.client.embedded_stack import EmbeddedStack;"
        f"EmbeddedStack(Path('home'), command=(sys.executable, '-c', {told + STACK!r})).up(print)"
    )
    environment = {**os.environ, "LONGSTRIDE_MCP_FILE": "own/mcp.json"}
    subprocess.run(
        [sys.executable, "-c", f"import sys; {program}"], check=True, cwd=tmp_path, env=environment, timeout=60
    )
    EmbeddedStack(tmp_path / "home").down()
    assert (tmp_path / "home/seen").read_text() == f"{tmp_path}/own/mcp.json /"


@pytest.mark.parametrize("name", [*path_settings(), *sorted(OTHERS)])
def test_a_path_that_is_seen_from_a_removed_directory_is_told(name: str) -> None:
    assert environment_elsewhere({name: "/x", "LANG": "C"}, None) == {name: "/x", "LANG": "C"}
    with pytest.raises(
        UsageProblem, match=f"{name}: 'own/x' is no absolute path, and the current directory was removed"
    ):
        environment_elsewhere({name: "own/x"}, None)


@pytest.mark.parametrize("name", sorted(LISTS))
def test_a_list_loses_what_a_removed_directory_held(name: str) -> None:
    assert environment_elsewhere({name: "libs:/usr/lib:"}, None) == {name: "/usr/lib"}


def in_removed_directory(folder: Path, *command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LONGSTRIDE_")}
    (folder / "removed").mkdir()
    return subprocess.run(
        ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", *command],
        cwd=folder / "removed",
        env={**clean, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "libs"))), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_stack_starts_from_a_directory_that_was_removed(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from longstride.client.embedded_stack import EmbeddedStack;"
        f"EmbeddedStack(Path({str(tmp_path / 'home')!r}), command=(sys.executable, '-c', {STACK!r})).up(print)"
    )
    started = in_removed_directory(tmp_path, sys.executable, "-c", f"import sys; {program}")
    assert started.returncode == 0, started.stderr
    assert EmbeddedStack(tmp_path / "home").down() is not None


@pytest.mark.parametrize(
    ("arguments", "home", "code", "told"),
    [
        (("up",), "own", 2, "error: the current directory was removed: cd to one that is there"),
        (("down",), "own", 2, "error: the current directory was removed"),
        (("doctor",), "own", 2, "error: the current directory was removed"),
        (("demo", "--home", "own"), "/nowhere", 2, "error: the current directory was removed"),
        (("mcp", "list"), "own", 2, "error: the current directory was removed"),
        (("run", "x", "-i", "y"), "/nowhere", 2, "input 'y' does not exist (the current directory was removed"),
        (("terminal-task", "check", "y"), "/nowhere", 1, "y is not a folder (the current directory was removed"),
        (("run", "x", "--policy", "scripted:y"), "/proc/nowhere", 1, "/proc/nowhere cannot hold an embedded stack"),
        (("down",), "/nowhere", 0, ""),
        (("tools",), "/nowhere", 0, ""),
    ],
)
def test_no_command_shows_a_traceback_in_a_removed_directory(
    tmp_path: Path, arguments: tuple[str, ...], home: str, code: int, told: str
) -> None:
    ran = in_removed_directory(
        tmp_path, sys.executable, "-m", "longstride.client.main", *arguments, LONGSTRIDE_HOME=home, COLUMNS="300"
    )
    assert (ran.returncode, told in ran.stdout + ran.stderr) == (code, True), ran.stderr
    assert "Traceback" not in ran.stderr
