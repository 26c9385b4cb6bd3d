"""The tools that a task has to ask for, in real sandboxes."""

from collections.abc import Iterator

import pytest

from longstride.contracts.v1.events import ActionExecuted
from longstride.contracts.v1.input_file import InputFile
from tests.support.sandboxes import SMALL, Arena, arena

CODE = InputFile(path="src/area.py", text="def area(w, h):\n    return w + h\n")
TESTS = InputFile(
    path="test_area.py",
    text=(
        "import sys, unittest\nsys.path.insert(0, 'src')\nfrom area import area\n\n\n"
        "class Area(unittest.TestCase):\n"
        "    def test_square(self):\n        self.assertEqual(area(2, 2), 4)\n"
        "    def test_strip(self):\n        self.assertEqual(area(1, 9), 9)\n"
    ),
)
LIMITS = SMALL.model_copy(update={"disk_mb": 4})


@pytest.fixture(scope="module")
def box() -> Iterator[Arena]:
    with arena() as made:
        yield made


def act(box: Arena, tool: str, before: ActionExecuted | None = None, **arguments: object) -> ActionExecuted:
    """One call of a task that may use everything."""
    known = {key: arguments.pop(key) for key in ("inputs", "limits", "task") if key in arguments}
    workspace = before.workspace if before else None
    names = ("shell", "edit_file", "run_tests", "artifact_put", "artifact_get", "submit")
    return box.act(tool, workspace=workspace, tools=names, **known, **arguments)


def seen(executed: ActionExecuted) -> tuple[str, str]:
    assert executed.observation is not None
    return executed.observation.status, executed.observation.text


def test_they_are_not_for_tasks_that_name_no_tools(box: Arena) -> None:
    status, text = seen(box.act("edit_file", path="a", old="b", new="c"))
    assert (status, text) == (
        "denied",
        "this task may not call edit_file; its tools are shell, python, read_file, write_file, search_files, submit, delegate, recall",
    )


def test_a_failing_test_is_mended_by_an_edit(box: Arena) -> None:
    first = act(box, "run_tests", inputs=(CODE, TESTS), task="mend")
    status, text = seen(first)
    assert status == "failed"
    assert text.splitlines()[:3] == [
        "1 of 2 tests pass (score 0.50), 1 failed, 0 broke, 0 skipped",
        "failed: test_area.Area.test_strip: AssertionError: 10 != 9",
        "passed: test_area.Area.test_square",
    ]
    assert text.endswith("exit code 1")
    wrong = act(box, "edit_file", first, path="src/area.py", old="    return w - h", new="x", task="mend")
    assert seen(wrong) == (
        "failed",
        "src/area.py is unchanged: old is not in it; lines 2 to 2 are the most alike:\n    2      return w + h",
    )
    assert wrong.workspace == first.workspace
    mended = act(box, "edit_file", wrong, path="src/area.py", old="w + h", new="w * h", task="mend")
    assert seen(mended) == ("ok", "src/area.py is changed:\n    1  def area(w, h):\n    2      return w * h")
    last = act(box, "run_tests", mended, arguments=["test_area"], task="mend")
    assert seen(last)[0] == "ok"
    assert seen(last)[1].startswith("2 of 2 tests pass (score 1.00)")


def test_an_edit_keeps_a_programs_mode_and_makes_files_from_diffs(box: Arena) -> None:
    made = act(box, "shell", command="printf '#!/bin/sh\\necho one\\n' > run && chmod 755 run", task="diff")
    edited = act(box, "edit_file", made, path="/workspace/run", diff="@@ -2 +2 @@\n-echo one\n+echo two\n", task="diff")
    new = act(
        box,
        "edit_file",
        edited,
        path="new/a.txt",
        diff="--- /dev/null\n+++ b/new/a.txt\n@@ -0,0 +1,2 @@\n+a\n+b\n",
        task="diff",
    )
    assert seen(new)[0] == "ok"
    assert seen(act(box, "shell", new, command="./run; cat new/a.txt; stat -c %a run", task="diff")) == (
        "ok",
        "two\na\nb\n755\n",
    )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"path": "no.txt", "old": "a", "new": "b"}, "no.txt is unchanged: no.txt: no such file or directory"),
        ({"path": "../up", "old": "a", "new": "b"}, "without .."),
        ({"path": "data.bin", "old": "a", "new": "b"}, "data.bin is unchanged: it is no text file"),
        ({"path": "link", "old": "root", "new": "b"}, "a link on the path leads out of the workspace"),
    ],
)
def test_what_cannot_be_edited_is_said(box: Arena, arguments: dict[str, object], why: str) -> None:
    made = act(box, "shell", command="printf 'a\\0b' > data.bin; ln -sf /etc/passwd link", task="odd")
    status, text = seen(act(box, "edit_file", made, task="odd", **arguments))
    assert (status, why in text) == ("failed", True), text


def test_any_command_is_a_test_run_and_its_report_is_read(box: Arena) -> None:
    report = '<testsuites><testsuite><testcase classname="a" name="one"/><testcase classname="a" name="two"><failure message="2 is not 3"/></testcase></testsuite></testsuites>'
    made = act(box, "shell", command=f"echo '{report}' > r.xml", task="report")
    status, text = seen(
        act(
            box,
            "run_tests",
            made,
            framework="command",
            command="echo ran; cp r.xml out.xml",
            report="out.xml",
            task="report",
        )
    )
    assert status == "failed"
    assert (
        text
        == "1 of 2 tests pass (score 0.50), 1 failed, 0 broke, 0 skipped\nfailed: a::two: 2 is not 3\npassed: a::one\n--- output\nran\n"
    )
    missing = act(box, "run_tests", made, framework="command", command="true", report="none.xml", task="report")
    assert seen(missing) == ("failed", "the command wrote no report none.xml\n--- output\n")
    plain = act(box, "run_tests", made, framework="command", command="[[ 1 == 1 ]] && echo fine", task="report")
    assert seen(plain) == ("ok", "no test is told of in the output: the exit code alone counts\n--- output\nfine\n")


def test_tests_that_never_end_are_told_as_far_as_they_got(box: Arena) -> None:
    slow = InputFile(
        path="test_slow.py",
        text="import time, unittest\n\n\nclass Slow(unittest.TestCase):\n    def test_a(self):\n        pass\n\n    def test_b(self):\n        time.sleep(60)\n",
    )
    status, text = seen(act(box, "run_tests", inputs=(slow,), timeout_s=2, task="slow"))
    assert status == "timeout"
    assert text.splitlines()[:3] == [
        "1 of 2 tests pass (score 0.50), 0 failed, 1 broke, 0 skipped",
        "broke: test_slow.Slow.test_b: it did not end",
        "passed: test_slow.Slow.test_a",
    ]
    assert "stopped by wall_s=2" in text


def test_no_tests_are_no_success(box: Arena) -> None:
    assert seen(act(box, "run_tests", task="none"))[1].startswith("no test was run\n--- output\n")
    missing = act(box, "run_tests", framework="pytest", task="none")
    assert seen(missing)[0] == "failed"


def test_a_file_is_kept_beyond_its_workspace_and_laid_into_another(box: Arena) -> None:
    made = act(box, "shell", command="seq 3 > numbers.txt", task="put")
    kept = act(box, "artifact_put", made, path="numbers.txt", task="put")
    status, text = seen(kept)
    assert status == "ok"
    key = text.rpartition("key ")[2]
    assert text == f"kept numbers.txt, size 6, key {key}"
    assert [(artifact.name, artifact.ref.key) for artifact in kept.artifacts] == [("numbers.txt", key)]
    assert kept.workspace == made.workspace
    again = act(box, "artifact_put", kept, path="/workspace/numbers.txt", task="put")
    assert again.artifacts == kept.artifacts
    got = act(box, "artifact_get", key=key, size=6, path="in/n.txt", task="get")
    assert seen(got) == ("ok", "in/n.txt holds 6 bytes")
    assert seen(act(box, "shell", got, command="cat in/n.txt", task="get")) == ("ok", "1\n2\n3\n")


def test_an_output_that_was_shown_in_part_can_be_had_whole(box: Arena) -> None:
    long = act(box, "shell", command="seq 5000", task="whole")
    assert long.observation is not None
    full = long.observation.full
    assert full is not None
    got = act(box, "artifact_get", long, key=full.key, size=full.size, path="out.txt", task="whole")
    assert seen(act(box, "shell", got, command="tail -n 1 out.txt", task="whole")) == ("ok", "5000\n")


@pytest.mark.parametrize(
    ("key", "size", "why"),
    [
        ("nonsense", 1, "'nonsense' is no key of this session: artifact_put gives one, as session/output/"),
        ("other/output/" + "0" * 64, 1, "is no key of this session"),
        ("session/input/" + "0" * 64, 1, "is no key of this session"),
        ("session/blob/" + "0" * 64, 1, "is no key of this session"),
        ("session/output/" + "0" * 64, 1, "nothing of 1 bytes is kept as session/output/0000"),
        ("session/output/" + "0" * 64, 5 << 20, "5242880 bytes do not fit: the workspace holds 4194304"),
    ],
)
def test_only_what_the_session_kept_can_be_had(box: Arena, key: str, size: int, why: str) -> None:
    status, text = seen(act(box, "artifact_get", key=key, size=size, path="a", limits=LIMITS, task="refused"))
    assert (status, why in text) == ("failed", True), text


def test_hidden_check_files_cannot_be_had(box: Arena) -> None:
    """Inputs and check files lie in the same session, under a kind that no tool reads."""
    ref = box.artifacts.put(b"expected 42", session="session", kind="input")
    status, text = seen(act(box, "artifact_get", key=ref.key, size=ref.size, path="a", task="hidden"))
    assert (status, "is no key of this session" in text) == ("failed", True)


@pytest.mark.parametrize(
    ("path", "why"), [("no.txt", "no such file"), ("../x", "without .."), ("sub", "not a regular file")]
)
def test_what_cannot_be_kept_is_said(box: Arena, path: str, why: str) -> None:
    made = act(box, "shell", command="mkdir sub", task="unkept")
    status, text = seen(act(box, "artifact_put", made, path=path, task="unkept"))
    assert (status, why in text) == ("failed", True), text
