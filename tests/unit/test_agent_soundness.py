"""What cannot be a task, whoever publishes it."""

import pytest

from longstride.agent.soundness import objection
from longstride.contracts.v1.commands import SubmitTask

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
