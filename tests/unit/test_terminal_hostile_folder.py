"""A task's folder may be a stranger's: it is refused with a sentence, shows nothing of this machine, and takes no time or memory
that its size would not tell of."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from longstride.client.errors import UsageProblem
from longstride.client.terminal.content import MOST_BYTES
from longstride.client.terminal.importer import read
from tests.support.terminal_folders import harbor, terminal_bench

HEAD = "FROM ubuntu\nWORKDIR /app\n"
ALIASES = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)
"""Ten to the power of twelve values, for a reader that goes through them."""


def refused(folder: Path) -> str:
    with pytest.raises(UsageProblem) as caught:
        read(folder)
    return str(caught.value)


def build(context: str, dockerfile: str = "Dockerfile") -> str:
    return f"services:\n  client:\n    build:\n      context: {context}\n      dockerfile: {dockerfile}\n"


@pytest.mark.parametrize(
    ("context", "dockerfile"),
    [
        ("..", "task/Dockerfile"),
        ("../..", "{parent}/task/Dockerfile"),
        ("/", "{rootless}/Dockerfile"),
        (".", "../beside/secret.txt"),
        (".", "/etc/passwd"),
        ("link", "task/Dockerfile"),
    ],
)
def test_a_build_context_is_a_part_of_the_folder(tmp_path: Path, context: str, dockerfile: str) -> None:
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "secret.txt").write_text("of this machine")
    task = tmp_path / "task"
    places = {"parent": tmp_path.name, "rootless": str(task).lstrip("/")}
    terminal_bench(
        task,
        **{
            "docker-compose_dot_yaml": build(context, dockerfile.format(**places)),
            "Dockerfile": f"{HEAD}COPY beside /app/b\nCOPY {places['parent']}/beside /app/b\n",
        },
    )
    (task / "link").symlink_to("..")
    assert "outside" in refused(task)


@pytest.mark.parametrize("name", ["tests", "solution", "environment"])
def test_a_folder_that_leads_outside_is_not_walked(tmp_path: Path, name: str) -> None:
    task = harbor(tmp_path / "task")
    (task / name).rename(tmp_path / "elsewhere")
    (task / name).symlink_to(tmp_path / "elsewhere")
    assert "outside" in refused(task)


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def hollow(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("make", [pipe, hollow])
@pytest.mark.parametrize(
    "name", ["task.toml", "instruction.md", "environment/Dockerfile", "environment/data/words.txt", "tests/test.sh"]
)
def test_what_is_no_file_or_has_no_end_is_not_read(tmp_path: Path, name: str, make: Callable[[Path], None]) -> None:
    task = harbor(tmp_path, f"{HEAD}COPY data/words.txt /app/\n")
    make(task / name)
    refused(task)


@pytest.mark.parametrize(
    "yaml",
    [
        ALIASES + "instruction: *a11\n",
        "instruction: x\na: " + "[" * 3000 + "]" * 3000,
        "instruction: x\na: &a\n  b: *a\n",
        "m0: &m0 {x: 1}\n"
        + "".join(f"m{i}: &m{i}\n  <<: [{', '.join([f'*m{i - 1}'] * 10)}]\n" for i in range(1, 9))
        + "instruction: x\n",
        "instruction: x\na: !!python/object/apply:os.system [id]\n",
    ],
    ids=["aliases", "deep", "circle", "merges", "object"],
)
def test_yaml_is_bounded(tmp_path: Path, yaml: str) -> None:
    refused(terminal_bench(tmp_path, task_dot_yaml=yaml))


def test_yaml_that_would_be_told_of_is_bounded(tmp_path: Path) -> None:
    indented = "".join(f"  {line}\n" for line in ALIASES.splitlines())
    compose = f"x-a:\n{indented}services:\n  client:\n    build: .\n    volumes: [*a11]\n"
    assert "aliases" in refused(terminal_bench(tmp_path, **{"docker-compose_dot_yaml": compose}))


@pytest.mark.parametrize(
    "lines",
    [
        "".join([f"ENV A{i}={f'$A{i - 1}' * 10 if i else 'x' * 10}\n" for i in range(10)]),
        "WORKDIR a\n" * 2000,
        "COPY " + "**/" * 12 + "x /app/\n",
        "COPY " + "*/" * 200 + "x /app/\n",
        "COPY a\0b /app/\n",
        "COPY " + "[" * 50_000 + "\n",
        "RUN sh <<A\n" * 1500 + "A\n" * 1500,
    ],
    ids=["variables", "workdirs", "stars", "parts", "nul", "list", "here-documents"],
)
def test_a_dockerfile_is_bounded(tmp_path: Path, lines: str) -> None:
    refused(harbor(tmp_path, HEAD + lines))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("instruction_dot_md", "#" + "canary" * 40_000 + "\nDo it."),
        ("instruction_dot_md", "\n \t" * 80_000 + "x"),
        ("tests__test_dot_sh", ";" + " " * 200_000 + "x"),
        ("tests__test_dot_sh", ";curl a" * 30_000),
        ("environment__Dockerfile", HEAD + "RUN x" + ";curl a" * 30_000 + "\n"),
        ("environment__Dockerfile", HEAD + "RUN x; " + " " * 200_000 + "q\n"),
        ("environment__Dockerfile", HEAD + "RUN x " + '"\\' * 60_000 + "\n"),
    ],
)
def test_lines_that_patterns_would_go_through_for_ever_are_read_at_once(tmp_path: Path, name: str, text: str) -> None:
    """A backtracking engine takes minutes for each, or does not end."""
    assert len(text) < MOST_BYTES
    read(harbor(tmp_path, **{name: text}))


@pytest.mark.parametrize(
    "toml",
    [
        "a=" + "[" * 5000,
        "[environment]\nmemory='infG'\n",
        "[environment]\nmemory='1e400G'\n",
        "[verifier]\ntimeout_sec=nan\n",
        "[environment]\ncpus=inf\n",
        "[verifier.env]\n\"A;touch x;B\"='1'\n",
        "[solution.env]\n\"A B\"='1'\n",
        "[environment.env]\n\"A\\u0000B\"='1'\n",
    ],
)
def test_odd_settings_are_told(tmp_path: Path, toml: str) -> None:
    refused(harbor(tmp_path, task_dot_toml=toml))
