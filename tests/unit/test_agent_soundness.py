"""What cannot be a task, whoever publishes it."""

import pytest

from longstride.agent.soundness import objection
from longstride.contracts.v1.check import CommandCheck
from longstride.contracts.v1.commands import SubmitTask
from longstride.contracts.v1.input_file import InputFile

TOOLS = ("shell", "submit")


def test_a_task_that_names_no_tools_or_known_ones_is_sound() -> None:
    assert objection(SubmitTask(instruction="x"), TOOLS) is None
    assert objection(SubmitTask(instruction="x", tools=()), TOOLS) is None
    assert objection(SubmitTask(instruction="x", tools=("submit",)), TOOLS) is None


@pytest.mark.parametrize(
    ("tools", "why"),
    [
        (("fly",), "there is no tool 'fly'; the tools are shell, submit"),
        (("fly", "shell", "swim", "fly"), "there is no tool 'fly', 'swim'; the tools are shell, submit"),
    ],
)
def test_unknown_tools_are_named_beside_the_known_ones(tools: tuple[str, ...], why: str) -> None:
    assert objection(SubmitTask(instruction="x", tools=tools), TOOLS) == why


@pytest.mark.parametrize(
    ("paths", "why"),
    [
        (("a", "b/c", "b/d", "bc"), None),
        (("a", "a/b"), "'a' would be a file and the folder of 'a/b'"),
        (("a/b/c/d", "x", "a/b"), "'a/b' would be a file and the folder of 'a/b/c/d'"),
        (("a/b", "./a//b"), "two files would be 'a/b'"),
        (("d/" + "é" * 128,), f"'d/{'é' * 38}'… has a name of more than 255 bytes"),
    ],
)
def test_files_that_cannot_lie_together_are_named(paths: tuple[str, ...], why: str | None) -> None:
    files = tuple(InputFile(path=path, text="x") for path in paths)
    assert objection(SubmitTask(instruction="x", inputs=files), TOOLS) == (why and f"inputs: {why}")
    hidden = CommandCheck(name="tests", run="true", files=files)
    told = why and f"files of the check 'tests': {why}"
    assert objection(SubmitTask(instruction="x", checks=(hidden,)), TOOLS) == told
