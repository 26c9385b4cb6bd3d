"""The tools in real sandboxes."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.check import CommandCheck
from longstride.contracts.v1.environment import Environment
from longstride.contracts.v1.events import ActionExecuted
from longstride.contracts.v1.input_file import InputFile
from tests.support.sandboxes import SMALL, Arena, arena

SALES = InputFile(path="data/sales.csv", text="day,amount\nmon,2.5\ntue,39.5\n")
TOTAL = "import csv\nrows = list(csv.DictReader(open('{path}')))\nprint(sum(float(r['{column}']) for r in rows))"


@pytest.fixture(scope="module")
def box() -> Iterator[Arena]:
    with arena() as made:
        yield made


def seen(executed: ActionExecuted) -> tuple[str, str]:
    assert executed.observation is not None
    return executed.observation.status, executed.observation.text


@pytest.fixture
def files(box: Arena) -> ArtifactRef:
    """A small workspace."""
    lines = "".join(f"line {n}\n" for n in range(1, 3001))
    command = (
        "mkdir -p src .git && echo 'def total(): pass' > src/app.py && echo 'total' > .git/index"
        " && printf '\\0\\1\\2total' > blob.bin && ln -s src/app.py link.py && mkfifo pipe"
    )
    first = box.act("shell", command=command, inputs=(SALES, InputFile(path="long.txt", text=lines)), task="files")
    assert first.workspace is not None
    return first.workspace


def test_an_error_is_read_and_corrected(box: Arena) -> None:
    """The three steps of a self-correction: a wrong name, a wrong column, the answer."""
    wrong = box.act("python", code=TOTAL.format(path="sales.csv", column="amount"), inputs=(SALES,), task="mend")
    status, text = seen(wrong)
    assert status == "failed"
    assert text.splitlines()[0] == "Traceback (most recent call last):"
    assert "FileNotFoundError: [Errno 2] No such file or directory: 'sales.csv'" in text
    assert text.endswith("\nexit code 1")
    found = box.act("search_files", pattern="sales.csv", workspace=wrong.workspace, inputs=(SALES,), task="mend")
    assert seen(found) == ("ok", "data/sales.csv")
    right = box.act(
        "python", code=TOTAL.format(path="data/sales.csv", column="amount"), workspace=wrong.workspace, task="mend"
    )
    assert seen(right) == ("ok", "42.0\n")


CALLS = {
    "shell": {"command": "python3 -c 'print(7)'"},
    "python": {"code": "print(7)"},
    "bash": {"command": "python3 -c 'print(7)'"},
    "run_tests": {"framework": "command", "command": "python3 -c 'print(7)'"},
}


@pytest.mark.parametrize("tool", CALLS)
@pytest.mark.parametrize("path", ["", "/opt/nothing"])
def test_no_path_of_a_task_hides_what_a_tool_runs(box: Arena, tool: str, path: str) -> None:
    environment = Environment(variables={"PATH": path})
    status, text = seen(box.act(tool, environment=environment, task=f"path-{tool}", tools=(tool,), **CALLS[tool]))
    assert (status, "7" in text.split()) == ("ok", True), text


def test_the_shell_is_bash_in_the_workspace(box: Arena) -> None:
    told = box.act(
        "shell", command='set -o pipefail; [[ $PWD == /workspace ]] && a=(1 2 3); echo "${a[2]} $USER"; false | true'
    )
    assert seen(told) == ("failed", "3 agent\nexit code 1")


def test_a_call_may_ask_for_less_time(box: Arena) -> None:
    status, text = seen(box.act("shell", command="echo begun; sleep 30", timeout_s=0.3))
    assert status == "timeout"
    assert text.startswith("begun\nstopped by wall_s=0.3 after 0.")


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        ({"path": "data/sales.csv"}, "ok", "day,amount\nmon,2.5\ntue,39.5\n"),
        (
            {"path": "/workspace/data/sales.csv", "start_line": 2, "lines": 1},
            "ok",
            "mon,2.5\n[lines 2 to 2 of 3; go on with start_line=3]",
        ),
        ({"path": "link.py"}, "ok", "def total(): pass\n"),
        ({"path": "long.txt", "start_line": 2999}, "ok", "line 2999\nline 3000\n"),
        ({"path": "long.txt", "start_line": 4000}, "failed", "the file has 3000 lines; start_line is 4000"),
        (
            {"path": "blob.bin"},
            "ok",
            "a binary file of 8 bytes that starts with 00 01 02 74 6f 74 61 6c; use shell or python to look into it",
        ),
        ({"path": "pipe"}, "failed", "pipe: no such file or directory"),
        ({"path": "src"}, "failed", "src: not a regular file"),
    ],
)
def test_files_are_read_in_parts(box: Arena, files: ArtifactRef, arguments: dict, status: str, text: str) -> None:
    assert seen(box.act("read_file", workspace=files, task="files", **arguments)) == (status, text)


def test_a_long_file_is_read_to_its_end(box: Arena, files: ArtifactRef) -> None:
    read, start = [], 1
    while start:
        _, text = seen(box.act("read_file", path="long.txt", start_line=start, workspace=files, task="files"))
        *lines, last = text.splitlines()
        read += lines if last.startswith("[") else [*lines, last]
        start = int(last.rstrip("]").rpartition("=")[2]) if last.startswith("[") else 0
    assert read == [f"line {n}" for n in range(1, 3001)]


def test_a_written_file_belongs_to_the_agent(box: Arena) -> None:
    first = box.act("write_file", path="a/b/run.sh", content="echo ran", task="write")
    assert seen(first) == ("ok", "a/b/run.sh holds 8 bytes")
    more = box.act(
        "write_file", path="a/b/run.sh", content=" twice\n", append=True, workspace=first.workspace, task="write"
    )
    command = "sh a/b/run.sh && stat -c %U:%a a a/b a/b/run.sh && rm -r a && ls"
    told = box.act("shell", command=command, workspace=more.workspace, task="write")
    assert seen(told) == ("ok", "ran twice\nagent:755\nagent:755\nagent:644\n")


def test_a_write_meets_the_workspaces_limit(box: Arena) -> None:
    told = box.act("write_file", path="large", content="x" * (9 << 20), task="large")
    if box.workspaces._volumes.create.__qualname__.startswith("Directory"):
        pytest.skip("no quota without root")
    assert told.observation is not None
    assert (told.observation.status, told.observation.limit) == ("limit", "disk_mb=8")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"pattern": "total"}, "src/app.py:1:def total(): pass"),
        ({"pattern": ".py"}, "link.py\nsrc/app.py"),
        ({"pattern": "app"}, "src/app.py"),
        ({"pattern": "t.*l\\(", "regex": True}, "src/app.py:1:def total(): pass"),
        ({"pattern": "t.*l("}, "no match"),
        ({"pattern": "^data/.*csv$", "regex": True}, "data/sales.csv"),
        ({"pattern": "mon", "path": "src"}, "no match"),
        ({"pattern": "mon", "path": "data"}, "data/sales.csv:2:mon,2.5"),
        ({"pattern": "line 29", "max_matches": 2}, "long.txt:29:line 29\nlong.txt:290:line 290\n[109 more matches]"),
        ({"pattern": "-e"}, "no match"),
    ],
)
def test_files_are_searched_by_path_and_by_line(box: Arena, files: ArtifactRef, arguments: dict, text: str) -> None:
    assert seen(box.act("search_files", workspace=files, task="files", **arguments)) == ("ok", text)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"pattern": "(", "regex": True}, "Unmatched ("),
        ({"pattern": "x", "path": "nowhere"}, "No such file"),
        ({"pattern": "x", "path": "../up"}, "without .."),
    ],
)
def test_a_bad_search_says_why(box: Arena, files: ArtifactRef, arguments: dict, why: str) -> None:
    status, text = seen(box.act("search_files", workspace=files, task="files", **arguments))
    assert status == "failed"
    assert why in text


def test_a_slow_pattern_is_stopped(box: Arena, files: ArtifactRef) -> None:
    limits = SMALL.model_copy(update={"wall_s": 1.0, "cpu_s": 1.0})
    pattern = "(x+x+)+y" * 3 + "\\1"
    started = time.monotonic()
    told = box.act("search_files", pattern=pattern, regex=True, workspace=files, task="files", limits=limits)
    assert time.monotonic() - started < 5
    assert told.workspace == files


CHECKS = [
    ("passes", "grep -q 42 $LONGSTRIDE_ANSWER && test -f data/sales.csv", (True, 1.0, None)),
    ("own file", "python3 $LONGSTRIDE_CHECKS/deep/test.py", (True, 1.0, None)),
    ("program", "$LONGSTRIDE_CHECKS/run.sh", (False, 0.25, None)),
    ("read only", "echo x > $LONGSTRIDE_CHECKS/run.sh", (False, 0.0, None)),
    ("missing program", "pytest-that-nobody-has -q", (False, 0.0, "'pytest-that-nobody-has', which is not installed")),
    ("own file is no program", "$LONGSTRIDE_CHECKS/nothing.sh", (False, 0.0, "cannot be run")),
    ("the agents program", "./built/app", (False, 0.0, None)),
    ("its word on what the check uses", "echo 'sh: 1: python3: not found' >&2; exit 127", (False, 0.0, None)),
    (
        "its word on what nobody asked for",
        "python3 -c \"import sys; sys.exit(print('sh: 1: ' + 'no' + 'thing: not found', file=sys.stderr) or 127)\"",
        (False, 0.0, None),
    ),
    (
        "its word on the checks own file",
        'echo "sh: 1: $LONGSTRIDE_CHECKS/run.sh: Permission denied" >&2; exit 126',
        (False, 0.0, None),
    ),
    ("no interpreter", "$LONGSTRIDE_CHECKS/odd.sh", (False, 0.0, "cannot be run")),
    ("memory", "python3 -c 'bytearray(1 << 30)'", (False, 0.0, None)),
    ("time", "sleep 60", (False, 0.0, None)),
]


@pytest.mark.parametrize(("name", "run", "expected"), CHECKS)
def test_command_checks_judge_what_was_submitted(box: Arena, name: str, run: str, expected: tuple) -> None:
    own = (
        InputFile(path="deep/test.py", text="import os\nassert open(os.environ['LONGSTRIDE_ANSWER']).read() == '42'\n"),
        InputFile(path="run.sh", text="#!/bin/sh\necho 1 of 4\necho score=0.25\nexit 1\n"),
        InputFile(path="odd.sh", text="#!/usr/bin/nobody-has-this\n"),
    )
    check = CommandCheck(name=name, run=run, files=own, timeout_s=1.5)
    told = box.act("submit", answer="42", checks=(check,), inputs=(SALES,), task=f"check {name}".replace(" ", "-"))
    result = told.checks[0]
    passed, score, error = expected
    assert (result.passed, result.score) == (passed, score)
    assert error in (result.error or "") if error else result.error is None


def test_the_agent_never_sees_a_checks_files(box: Arena) -> None:
    hidden = InputFile(path="expected.txt", text="the hidden answer")
    check = CommandCheck(run="cp $LONGSTRIDE_CHECKS/expected.txt stolen; exit 1", files=(hidden,))
    first = box.act("submit", answer="?", checks=(check,), task="hidden")
    told = box.act("shell", command="ls -R . /run /tmp; cat stolen", workspace=first.workspace, task="hidden")
    assert "expected" not in seen(told)[1]
    assert "hidden answer" not in seen(told)[1]


def test_an_interpreter_outside_usr_is_shown_at_its_own_place(monkeypatch: pytest.MonkeyPatch) -> None:
    if Path(sys.base_prefix).is_relative_to("/usr"):
        pytest.skip("this interpreter lies in /usr")
    monkeypatch.setattr("longstride.sandbox.hosted.PYTHON_FOLDERS", ())
    with arena() as box:
        command = f'{sys.base_prefix}/bin/python3 -c "import sys, ssl; print(sys.version_info[:3])"; echo $PATH; touch {sys.base_prefix}/x'
        execution = box.shell(command)
    version, path = execution.stdout.decode().splitlines()
    assert version == str(sys.version_info[:3])
    assert path.endswith(f":{sys.base_prefix}/bin")
    assert b"Read-only file system" in execution.stderr
