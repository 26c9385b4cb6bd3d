"""What a person sees of a running task."""

import io

import pytest
from rich.console import Console

from longstride.client.screen.console import THEME
from longstride.client.screen.live import LiveView
from longstride.contracts.v1.action import Action, CheckResult, Usage
from longstride.contracts.v1.commands import ApproveAction, CancelTask, MessageTask, PauseTask, SubmitTask
from longstride.contracts.v1.events import ActionExecuted, Generated
from longstride.contracts.v1.limits import Limits
from tests.support.rehearsal import Rehearsal

TASK = SubmitTask(
    instruction="What is the total of amount in orders.csv?",
    inputs=[{"path": "shop/orders.csv", "text": "amount\n3\n"}],
    checks=[{"kind": "answer", "name": "answer", "number": 3}],
    policy="builtin",
)
TRACEBACK = """Traceback (most recent call last):
  File "/workspace/step.py", line 2, in <module>
    open("orders.csv")
FileNotFoundError: [Errno 2] No such file or directory: 'orders.csv'"""


def shown(rehearsal: Rehearsal, *, width: int = 100, terminal: bool = False) -> str:
    file = io.StringIO()
    console = Console(
        file=file, theme=THEME, width=width, force_terminal=terminal, color_system="standard" if terminal else None
    )
    with LiveView([rehearsal.task.id], console) as view:
        for seq, event in enumerate(rehearsal.events, 1):
            view.show(rehearsal.task.id, seq, event)
    return file.getvalue()


def think(rehearsal: Rehearsal, action: Action, tokens: tuple[int, int] = (200, 38), seconds: float = 0.31) -> None:
    rehearsal.wait(seconds)
    usage = Usage(input_tokens=tokens[0], output_tokens=tokens[1])
    rehearsal.hear(Generated(step=rehearsal.task.step, text="…", action=action, policy="builtin", usage=usage))


def corrected() -> Rehearsal:
    """A task whose first command fails and whose next one works."""
    task = Rehearsal(TASK).start()
    think(task, Action(tool="python", arguments={"code": 'open("orders.csv")'}, plan=("read", "add up"), thought="hm"))
    task.wait(0.08).observe(TRACEBACK, "failed")
    think(task, Action(tool="python", arguments={"code": 'open("shop/orders.csv")'}))
    task.wait(0.02).observe("3\nbye")
    think(task, Action(tool="submit", arguments={"answer": "3"}))
    passed = CheckResult(name="answer", passed=True, score=1)
    return task.observe("submitted", checks=(passed,))


def test_each_step_shows_plan_action_observation_check_tokens_and_time() -> None:
    lines = shown(corrected()).splitlines()
    assert lines == [
        "▸ task_1  policy builtin, fast track",
        "  What is the total of amount in orders.csv?",
        "  inputs shop/orders.csv   checks answer",
        "       plan          1 read · 2 add up",
        "       thought       hm",
        '   1 · python        open("orders.csv")                                            238 tok   0.31 s',
        "     ✗ failed        FileNotFoundError: [Errno 2] No such file or directory: 'o…             0.08 s",
        "       ↳             It raised FileNotFoundError at /workspace/step.py:2. Mend that before going on.",
        '   2 ↻ python        open("shop/orders.csv")                                       238 tok   0.31 s',
        "     ✓ ok            3 (+1 line)                                                             0.02 s",
        "   3 · submit        3                                                             238 tok   0.31 s",
        "     ✓ ok            submitted                                                               0.00 s",
        "       check         ✓ answer passed",
        "     ✓ succeeded     checks passed · answer 3 · reward 1.00",
        "                     3 steps · 714 tokens · 1.03 s",
    ]


def test_a_task_that_nothing_checked_is_not_shown_as_a_success() -> None:
    task = Rehearsal("Count.").start().propose("submit", answer="7").observe("submitted")
    assert "     ○ submitted, nothing checked · answer 7" in shown(task).splitlines()
    coloured = shown(task, terminal=True)
    assert "\x1b[1;33m○ submitted, nothing checked" in coloured
    assert "succeeded" not in coloured


def test_a_failing_check_shows_a_cross_and_which_failed() -> None:
    results = (
        CheckResult(name="number", passed=False, score=0, detail="expected 3, got 4"),
        CheckResult(name="tests", passed=True, score=1),
    )
    task = Rehearsal(TASK).start().propose("submit", answer="4").observe("1 of 2 checks passed", checks=results)
    lines = [line.rstrip() for line in shown(task).splitlines()]
    assert any(line.startswith("     ✗ failed        1 of 2 checks passed; number failed") for line in lines)
    assert "       check         ✗ number expected 3, got 4" in lines
    assert "       check         ✓ tests passed" in lines
    assert not any(line.startswith("     ✓") for line in lines)


def test_a_check_that_could_not_run_is_told_apart() -> None:
    result = CheckResult(name="tests", passed=False, score=0, error="pytest is not installed")
    task = Rehearsal(TASK).start().propose("submit", answer="4").observe("0 of 1 checks passed", checks=(result,))
    assert "✗ failed        0 of 1 checks passed; tests could not run" in shown(task)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, shown(corrected(), width=width).splitlines())) <= width


def test_colours_only_where_a_terminal_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[31m" in shown(corrected(), terminal=True)
    assert "\x1b[1;32m✓ succeeded" in shown(corrected(), terminal=True)
    assert "\x1b" not in shown(corrected())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in shown(corrected(), terminal=True)


def test_text_of_agents_cannot_reach_the_terminal_raw() -> None:
    task = Rehearsal(SubmitTask(instruction="\x1b[31mx\x1b[0m")).start()
    think(task, Action(tool="shell", arguments={"command": "printf '\x1b]0;t\x07'"}, thought="\x1b[2J", plan=("\x9b",)))
    task.observe("\x1b[1mbold\x1b[0m\x07", "failed")
    said = shown(task)
    assert not {c for c in said if ord(c) < 32 or 127 <= ord(c) < 160} - {"\n"}
    assert r"\x1b[1mbold" in said


def test_text_of_agents_is_not_markup() -> None:
    task = Rehearsal("x").start().propose("shell", command="echo [bold red]hi[/]").observe("[link=http://evil]x[/link]")
    assert "[link=http://evil]x[/link]" in shown(task)
    assert "echo [bold red]hi[/]" in shown(task)


def test_an_answer_that_is_no_action_says_why() -> None:
    said = shown(Rehearsal("x").start().babble())
    assert "not an action" in said
    assert "↳             not JSON" in said


def test_waiting_for_a_person_says_how_to_decide() -> None:
    task = Rehearsal("x", approvals="always").start().propose("shell", command="rm -r out")
    assert "longstride approve task_1 --step 1 (or --deny)" in shown(task)
    task.hear(ApproveAction(step=1, approved=False, reason="no", by="ada"))
    assert "denied by ada: no" in shown(task)


def test_an_answer_is_shown_as_what_it_was() -> None:
    denied = Rehearsal("x", approvals="always").start().propose("submit", answer="42")
    denied.hear(ApproveAction(step=1, approved=False, by="ada")).hear(CancelTask())
    assert "answer" not in shown(denied).splitlines()[-2]
    wrong = Rehearsal(TASK.model_copy(update={"limits": Limits(submissions=1)})).start().submit(False)
    assert "submissions exhausted · answer 7, not accepted · reward 0.00" in shown(wrong)


def test_messages_pauses_and_failures_show() -> None:
    task = Rehearsal("x", limits={"steps": 1}).start()
    task.hear(MessageTask(text="in cents")).hear(PauseTask())
    task.hear(Generated(step=1, text="", action=Action(tool="shell", arguments={"command": "ls"}), policy="p"))
    said = shown(task)
    assert "message       in cents" in said
    assert "longstride resume task_1" in said


def test_a_task_that_ran_out_says_of_what() -> None:
    task = Rehearsal("x", limits={"steps": 1}).start().step(tool="shell", command="ls")
    said = shown(task)
    assert "✗ failed        steps exhausted" in said
    assert "1 of 1 steps used" in said


def test_an_infrastructure_failure_shows_no_reward() -> None:
    task = Rehearsal(TASK).start().propose("shell", command="ls")
    task.hear(ActionExecuted(step=1, error="no executor"))
    assert "reward" not in shown(task)


def test_ascii_marks_where_the_output_cannot_show_others() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    console = Console(file=file, theme=THEME, width=100)
    with LiveView(["task_1"], console) as view:
        for seq, event in enumerate(corrected().events, 1):
            view.show("task_1", seq, event)
    file.flush()
    said = file.buffer.getvalue().decode("ascii")
    assert "x failed" in said
    assert "2 ~ python" in said


def test_several_tasks_are_told_apart() -> None:
    file = io.StringIO()
    with LiveView(["task_aaaaaaaa1", "task_1"], Console(file=file, theme=THEME, width=100)) as view:
        for seq, event in enumerate(corrected().events, 1):
            view.show("task_1", seq, event)
    assert all(line.startswith("task_1") for line in file.getvalue().splitlines())
