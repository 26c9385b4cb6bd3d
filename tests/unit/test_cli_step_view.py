"""Steps as people read them, folded from events."""

from collections.abc import Iterable
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console
from rich.text import Text

from longstride.agent.events import Ended, Subtask
from longstride.client.screen.step_lines import StepLines
from longstride.client.screen.symbols import ASCII
from longstride.client.step_view import StepView, history
from longstride.contracts.v1.action import Action, CheckResult, Observation
from longstride.contracts.v1.commands import ApproveAction
from longstride.contracts.v1.egress import Connection, Traffic
from longstride.contracts.v1.events import Generated
from tests.support.rehearsal import NOON, Rehearsal

HOSTILE = "\x1b]0;owned\x07\x9b31m\r\u202e\n\x00"


def test_nothing_of_a_step_that_an_agent_wrote_controls_a_terminal() -> None:
    """Every text of a step, whoever checked it before."""
    arguments = {"a": HOSTILE, HOSTILE: [HOSTILE]}
    action = Action.model_construct(thought=HOSTILE, plan=(HOSTILE,), tool=HOSTILE, arguments=arguments)
    check = CheckResult.model_construct(name=HOSTILE, passed=False, score=0.5, weight=1.0, detail=HOSTILE, error=None)
    seen = Observation.model_construct(status="failed", text=HOSTILE, exit_code=1, full=None, limit=HOSTILE)
    part = Subtask(name=HOSTILE, task_id="0" * 32, instruction=HOSTILE, after=(HOSTILE,))
    asked = Connection.model_construct(
        host=HOSTILE, port=1, address=HOSTILE, sent=0, received=0, why=HOSTILE, verdict="allowed"
    )
    step = StepView(
        1,
        NOON,
        status="acting",
        text=HOSTILE,
        action=action,
        new_plan=(HOSTILE,),
        format_error=HOSTILE,
        question=HOSTILE,
        decision=HOSTILE,
        subtasks=(part,),
        observation=seen,
        reflection=HOSTILE,
        checks=(check, check.model_copy(update={"error": HOSTILE})),
        traffic=Traffic.model_construct(connections=(asked,), total=2, refused=1, log=None),
        nudge=HOSTILE,
    )
    lines = StepLines(300, ASCII)
    bare = replace(step, action=None, checks=())
    end = Ended(at=NOON, outcome="failed", reason="stuck", detail=HOSTILE)
    told = [
        *(line for each in (step, bare) for line in (*lines.proposed(each), *lines.observed(each))),
        *(line for show in (lines.waiting, lines.decided, lines.network, lines.delegated) for line in show(step)),
        *lines.ended(end, HOSTILE, HOSTILE),
        lines.note(HOSTILE, HOSTILE),
    ]
    console = Console(file=StringIO(), width=300)
    for line in told:
        console.print(line)
    assert len(told) > 15
    assert set(console.file.getvalue()) & set("\x1b\x07\x9b\r\u202e\x00") == set()  # type: ignore[attr-defined]


def test_times_are_those_of_the_model_and_the_tool() -> None:
    task = Rehearsal("x").start().wait(2).propose("shell", command="ls").wait(3).observe("a")
    step = history(task.events).steps[1]
    assert (step.model_s, step.tool_s) == (2.0, 3.0)


def test_waiting_for_a_person_is_not_the_tools_time() -> None:
    task = Rehearsal("x", approvals="always").start().propose("shell", command="ls").wait(60)
    task.hear(ApproveAction(step=1, approved=True, by="ada")).wait(3).observe("a")
    step = history(task.events).steps[1]
    assert (step.decision, step.tool_s) == ("approved by ada", 3.0)


def test_a_step_after_a_failed_one_corrects_it() -> None:
    task = Rehearsal("x").start().step("no such file", "failed", tool="shell", command="cat a")
    task.step("ok", tool="shell", command="cat b").step("ok", tool="shell", command="cat c")
    corrects = {number: step.corrects for number, step in history(task.events).steps.items()}
    assert corrects == {1: None, 2: 1, 3: None, 4: None}


def test_a_step_after_an_answer_that_was_no_action_corrects_it() -> None:
    past = history(Rehearsal("x").start().babble().events)
    assert past.steps[1].status == "format_error"
    assert past.steps[2].corrects == 1


def test_a_step_after_a_failed_check_corrects_it() -> None:
    task = Rehearsal("x", checks=[{"kind": "answer", "equals": "1"}]).start().submit(False)
    assert history(task.events).steps[2].corrects == 1


def test_a_plan_shows_where_it_changes() -> None:
    task = Rehearsal("x").start()
    for plan in (("a", "b"), ("a", "b"), None, ("b",)):
        action = Action(tool="shell", arguments={"command": f"echo {task.task.step}"}, plan=plan)
        task.hear(Generated(step=task.task.step, text="", action=action, policy="p")).observe(str(task.task.step))
    past = history(task.events)
    assert [past.steps[i].new_plan for i in range(1, 5)] == [("a", "b"), None, None, ("b",)]
    assert past.plan == ("b",)


def test_a_step_that_still_thinks_is_not_called_a_bad_answer() -> None:
    lines = StepLines(80, ASCII)
    thinking = history(Rehearsal("x").start().events).steps[1]
    (line,) = lines.proposed(thinking)
    assert "no reply" in line.plain
    babble = history(Rehearsal("x").start().babble().events).steps[1]
    assert "not an action" in next(iter(lines.proposed(babble))).plain


WHY = "the check needs the program 'pytest', which is not installed on the executor's host: install it there and submit again"


def told(lines: Iterable[Text]) -> str:
    """What a person reads, the layout taken away."""
    return " ".join(" ".join(line.plain.split()) for line in lines)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_why_a_task_failed_is_wrapped_and_not_cut(width: int) -> None:
    end = Ended(at=NOON, outcome="failed", reason="check_cannot_run", detail=WHY)
    lines = list(StepLines(width, ASCII).ended(end, None))
    assert WHY in told(lines)
    assert max(len(line.plain) for line in lines[1:]) <= width


def test_why_a_check_failed_is_wrapped_to_a_few_lines() -> None:
    lines = StepLines(60, ASCII)
    assert WHY in told(lines.check(CheckResult(name="c", passed=False, score=0, detail=WHY)))
    endless = CheckResult(name="c", passed=False, score=0, detail=WHY * 20)
    assert len(list(lines.check(endless))) == 4


def test_a_word_that_fits_no_line_is_broken() -> None:
    end = Ended(at=NOON, outcome="failed", reason="infrastructure", detail="x" * 200)
    lines = list(StepLines(60, ASCII).ended(end, None))[1:]
    assert "".join(line.plain.strip() for line in lines) == "x" * 200
