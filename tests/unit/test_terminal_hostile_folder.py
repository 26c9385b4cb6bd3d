"""A task's folder may be a stranger's: it is refused with a sentence, shows nothing of this machine, and takes no time or memory
that its size would not tell of."""

import os
from collections.abc import Callable, Mapping
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


def refused(folder: Path, told: str) -> None:
    """Nothing less than this sentence: a folder is easily refused for another fault than the one that is looked for."""
    with pytest.raises(UsageProblem) as caught:
        read(folder)
    assert told in str(caught.value)


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
    refused(task, "outside")


@pytest.mark.parametrize("name", ["tests", "solution", "environment"])
def test_a_folder_that_leads_outside_is_not_walked(tmp_path: Path, name: str) -> None:
    task = harbor(tmp_path / "task")
    (task / name).rename(tmp_path / "elsewhere")
    (task / name).symlink_to(tmp_path / "elsewhere")
    refused(task, "outside")


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def hollow(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


NO_FILE = {
    "task.toml": "is no terminal task: it has neither task.toml",
    "instruction.md": "instruction.md is no regular file",
    "environment/Dockerfile": "environment/Dockerfile is missing",
    "environment/data/words.txt": "COPY data/words.txt /app/: data/words.txt is no regular file",
    "tests/test.sh": "tests/test.sh is missing",
}
NO_END = {
    "task.toml": "task.toml has more than 256 KiB",
    "instruction.md": "instruction.md has more than 256 KiB",
    "environment/Dockerfile": "environment/Dockerfile has more than 256 KiB",
    "environment/data/words.txt": "its files have 1048576 MiB together; 2048 are taken",
    "tests/test.sh": "its files have 1048576 MiB together; 2048 are taken",
}


@pytest.mark.parametrize(("make", "reasons"), [(pipe, NO_FILE), (hollow, NO_END)], ids=["pipe", "hollow"])
@pytest.mark.parametrize("name", NO_FILE)
def test_what_is_no_file_or_has_no_end_is_not_read(
    tmp_path: Path, name: str, make: Callable[[Path], None], reasons: Mapping[str, str]
) -> None:
    task = harbor(tmp_path, f"{HEAD}COPY data/words.txt /app/\n")
    make(task / name)
    refused(task, reasons[name])


TOO_MANY = "task.yaml has more than 20000 values once its aliases are followed"


@pytest.mark.parametrize(
    ("yaml", "told"),
    [
        (ALIASES + "instruction: *a11\n", TOO_MANY),
        ("instruction: x\na: " + "[" * 3000 + "]" * 3000, "one of its files is nested too deeply"),
        ("instruction: x\na: &a\n  b: *a\n", TOO_MANY),
        (
            "m0: &m0 {x: 1}\n"
            + "".join(f"m{i}: &m{i}\n  <<: [{', '.join([f'*m{i - 1}'] * 10)}]\n" for i in range(1, 9))
            + "instruction: x\n",
            TOO_MANY,
        ),
        (
            "instruction: x\na: !!python/object/apply:os.system [id]\n",
            "task.yaml is not YAML: could not determine a con",
        ),
    ],
    ids=["aliases", "deep", "circle", "merges", "object"],
)
def test_yaml_is_bounded(tmp_path: Path, yaml: str, told: str) -> None:
    refused(terminal_bench(tmp_path, task_dot_yaml=yaml), told)


def test_yaml_that_would_be_told_of_is_bounded(tmp_path: Path) -> None:
    indented = "".join(f"  {line}\n" for line in ALIASES.splitlines())
    compose = f"x-a:\n{indented}services:\n  client:\n    build: .\n    volumes: [*a11]\n"
    folder = terminal_bench(tmp_path, **{"docker-compose_dot_yaml": compose})
    refused(folder, "docker-compose.yaml has more than 20000 values once its aliases are followed")


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            "".join([f"ENV A{i}={f'$A{i - 1}' * 10 if i else 'x' * 10}\n" for i in range(10)]),
            "with its variables it has more than 65536 characters",
        ),
        ("WORKDIR a\n" * 2000, "has more than 128 folders above each other"),
        ("COPY " + "**/" * 12 + "x /app/\n", "**/x' is no path, and no pattern that Docker knows"),
        ("COPY " + "*/" * 200 + "x /app/\n", "*/' is no path, and no pattern that Docker knows"),
        ("COPY a\0b /app/\n", r"'a\x00b' is no path, and no pattern that Docker knows"),
        ("COPY " + "[" * 50_000 + " /app/\n", "[' is no path, and no pattern that Docker knows"),
        ("ENTRYPOINT " + "[" * 50_000 + "\n", "nothing is started before the agent"),
        ("RUN sh <<A\n" * 1500, "its here-document does not end with A"),
    ],
    ids=["variables", "workdirs", "stars", "parts", "nul", "list", "command-list", "here-documents"],
)
def test_a_dockerfile_is_bounded(tmp_path: Path, lines: str, told: str) -> None:
    refused(harbor(tmp_path, HEAD + lines), told)


@pytest.mark.parametrize("line", ["[" * 50_000, "*a" * 50_000, "!" + "[" * 50_000], ids=["list", "stars", "kept"])
def test_a_dockerignore_is_bounded(tmp_path: Path, line: str) -> None:
    folder = harbor(tmp_path, f"{HEAD}COPY data /app/\n", environment___dot_dockerignore=f"{line}\n")
    (folder / "environment/data").mkdir(exist_ok=True)
    (folder / "environment/data" / ("a" * 250)).write_text("x")
    refused(folder, "has more than 255 characters")


def test_here_documents_that_end_are_read_one_after_the_other(tmp_path: Path) -> None:
    read(harbor(tmp_path, HEAD + "RUN sh <<A\ntrue\nA\n" * 1500))


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
    ("toml", "told"),
    [
        ("a=" + "[" * 5000, "one of its files is nested too deeply"),
        ("[environment]\nmemory='infG'\n", "environment.memory: 'infG' is no size such as 512M or 2G"),
        ("[environment]\nmemory='1e400G'\n", "environment.memory: '1e400G' is no size such as 512M or 2G"),
        ("[verifier]\ntimeout_sec=nan\n", "verifier.timeout_sec: Input should be greater than 0"),
        ("[environment]\ncpus=inf\n", "cpus: Input should be a finite number"),
        ("[verifier.env]\n\"A;touch x;B\"='1'\n", "verifier.env names 'A;touch x;B', which cannot be a variable"),
        ("[solution.env]\n\"A B\"='1'\n", "solution.env names 'A B', which cannot be a variable"),
        ("[environment.env]\n\"A\\u0000B\"='1'\n", "variables.A\0B.[key]: String should match pattern"),
    ],
)
def test_odd_settings_are_told(tmp_path: Path, toml: str, told: str) -> None:
    refused(harbor(tmp_path, task_dot_toml=toml), told)
