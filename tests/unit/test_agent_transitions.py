"""The life of a task, message by message."""

from datetime import timedelta

import pytest

from longstride.agent.decision import Abandon, Dispatch, SetDeadline
from longstride.agent.events import load, store
from longstride.agent.task import Task, fold
from longstride.contracts.v1.action import CheckResult, Usage
from longstride.contracts.v1.check import AnswerCheck
from longstride.contracts.v1.commands import (
    ApproveAction,
    CancelTask,
    ExecuteAction,
    ExpireTask,
    Generate,
    MessageTask,
    PauseTask,
    ResumeTask,
    SubmitTask,
)
from longstride.contracts.v1.context import Message
from longstride.contracts.v1.events import ActionExecuted, Generated, TaskEnded
from longstride.contracts.v1.limits import Limits
from tests.support.rehearsal import NOON, Rehearsal

CHECKS = (AnswerCheck(equals="7"),)


def test_a_step_is_generate_then_execute_then_generate() -> None:
    play = Rehearsal().start()
    assert [g.step for g in play.sent(Generate)] == [1]
    play.propose(command="wc -l a")
    assert [x.action.tool for x in play.sent(ExecuteAction)] == ["shell"]
    play.observe("3 a")
    assert [g.step for g in play.sent(Generate)] == [2]
    contents = [(m.role, m.content) for m in play.sent(Generate)[0].context.tail]
    assert contents[1:] == [
        ("user", "Count the lines."),
        ("assistant", "shell {'command': 'wc -l a'}"),
        ("tool", "3 a"),
    ]


def test_it_ends_only_when_the_checks_pass() -> None:
    play = Rehearsal(checks=CHECKS).start().submit(False)
    assert play.task.phase == "thinking"
    assert "0 of 1 checks passed" in play.sent(Generate)[0].context.tail[-1].content
    play.submit(True)
    ended = play.sent(TaskEnded)[0]
    assert (ended.outcome, ended.reason, ended.reward, ended.answer) == ("succeeded", "checks_passed", 1.0, "7")


def test_partial_credit_is_the_reward_when_submissions_run_out() -> None:
    play = Rehearsal(checks=CHECKS, limits=Limits(submissions=1)).start().submit(True, False)
    assert (play.task.outcome, play.task.reason, play.task.reward) == ("failed", "submissions_exhausted", 0.5)


def test_without_checks_a_submission_succeeds_without_a_reward() -> None:
    play = Rehearsal().start().submit()
    assert (play.task.outcome, play.task.reason, play.task.reward) == ("succeeded", "submitted", None)


def test_an_answer_that_a_person_denied_was_never_given() -> None:
    play = Rehearsal(approvals="always").start().propose("submit", answer="42")
    play.hear(ApproveAction(step=1, approved=False, by="ada"))
    assert play.task.answer is None
    assert play.hear(CancelTask()).sent(TaskEnded)[0].answer is None


def test_an_answer_that_was_not_handed_in_leaves_the_one_before() -> None:
    play = Rehearsal(checks=CHECKS).start().submit(False)
    play.propose("submit", answer="8", artifacts=["missing"]).observe("not submitted", "invalid")
    assert play.task.answer == "7"


@pytest.mark.parametrize("acting", [False, True])
def test_a_call_that_comes_to_nothing_after_the_clock_ran_out_ends_by_the_clock(acting: bool) -> None:
    play = Rehearsal(limits=Limits(wall_clock_s=20)).start()
    if acting:
        play.propose(command="sleep 60").wait(20.5).hear(ActionExecuted(step=1, error="it hung"))
    else:
        play.wait(20.5).hear(Generated(step=1, text="", policy="p", error="it hung"))
    assert (play.task.outcome, play.task.reason) == ("failed", "wall_clock_exhausted")
    assert play.task.detail == "20.5 of 20 seconds of running time used; the call in flight came to nothing: it hung"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Generated(step=1, text="", policy="p", error="no answer"), "policy_unavailable"),
    ],
)
def test_a_failure_that_is_not_the_agents_has_no_reward(message: Generated, reason: str) -> None:
    play = Rehearsal(checks=CHECKS).start().hear(message)
    assert (play.task.outcome, play.task.reason, play.task.reward) == ("failed", reason, None)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"error": "no attempt left"}, "infrastructure"),
        ({"input_error": "a.csv is gone"}, "input_unusable"),
        ({}, "infrastructure"),
    ],
)
def test_an_action_that_could_not_be_carried_out_ends_the_task_without_a_reward(
    fields: dict[str, str], reason: str
) -> None:
    play = Rehearsal(checks=CHECKS).start().propose().hear(ActionExecuted(step=1, **fields))
    assert (play.task.reason, play.task.reward) == (reason, None)


def test_a_check_that_cannot_run_is_not_a_verdict() -> None:
    broken = CheckResult(name="c", passed=False, score=0, error="exit 127")
    play = Rehearsal(checks=CHECKS).start().propose("submit", answer="7").observe("ok", checks=(broken,))
    assert (play.task.reason, play.task.reward) == ("check_cannot_run", None)


def test_an_agent_that_never_hands_in_gets_zero() -> None:
    play = Rehearsal(checks=CHECKS, limits=Limits(steps=1)).start().step()
    assert (play.task.reason, play.task.reward) == ("steps_exhausted", 0.0)


@pytest.mark.parametrize("stale", [Generated(step=9, text="x", policy="p"), ActionExecuted(step=1, error="late")])
def test_an_answer_that_nobody_waits_for_changes_nothing(stale: Generated | ActionExecuted) -> None:
    play = Rehearsal().start().hear(stale)
    assert play.last.events == []
    assert play.last.effects == []


def test_the_same_answer_twice_counts_once() -> None:
    play = Rehearsal().start()
    answer = Generated(step=1, text="x", policy="p", format_error="no", usage=Usage(output_tokens=5))
    play.hear(answer).hear(answer)
    assert play.task.spent.output_tokens == 5


def test_format_errors_in_a_row_end_the_task_and_one_good_answer_resets_them() -> None:
    play = Rehearsal(limits=Limits(format_errors=2)).start().babble().step().babble()
    assert play.task.phase == "thinking"
    assert play.babble().task.reason == "format_errors_exhausted"


def test_tokens_over_the_budget_stop_the_action_that_they_bought() -> None:
    play = Rehearsal(limits=Limits(tokens=100)).start().propose(usage=Usage(input_tokens=99, output_tokens=1))
    assert play.task.reason == "tokens_exhausted"
    assert not play.sent(ExecuteAction)


def test_cost_over_the_budget_ends_the_task() -> None:
    play = Rehearsal(limits=Limits(cost_usd=0.5)).start().propose(usage=Usage(cost_usd=0.6))
    assert play.task.reason == "cost_exhausted"


def test_a_pause_waits_for_the_call_in_flight_and_keeps_its_action() -> None:
    play = Rehearsal().start().hear(PauseTask()).propose(command="ls")
    assert play.task.phase == "paused"
    assert not play.sent(ExecuteAction)
    play.hear(ResumeTask())
    assert [x.action.arguments for x in play.sent(ExecuteAction)] == [{"command": "ls"}]


def test_a_paused_task_spends_no_time() -> None:
    play = Rehearsal(limits=Limits(wall_clock_s=60)).start().wait(10).hear(PauseTask()).propose()
    play.wait(1000).hear(ResumeTask())
    assert play.task.phase == "acting"
    assert play.task.running_s(play.now) == 10
    assert [e.seconds for e in play.last.effects if isinstance(e, SetDeadline)] == [50]


def test_a_pause_can_be_taken_back_before_it_happens() -> None:
    play = Rehearsal().start().hear(PauseTask()).hear(ResumeTask()).propose()
    assert play.task.phase == "acting"


def test_of_a_pause_and_a_resume_that_overtake_each_other_the_later_one_counts() -> None:
    play = (
        Rehearsal()
        .start()
        .hear(ResumeTask(), NOON + timedelta(seconds=2))
        .hear(PauseTask(), NOON + timedelta(seconds=1))
    )
    assert play.propose().task.phase == "acting"
    assert play.hear(PauseTask(), NOON + timedelta(seconds=3)).observe().task.phase == "paused"


def test_messages_that_overtake_each_other_are_shown_in_the_order_they_were_sent() -> None:
    play = Rehearsal().start().propose()
    play.hear(MessageTask(text="two"), NOON + timedelta(seconds=2)).hear(
        MessageTask(text="one"), NOON + timedelta(seconds=1)
    )
    assert [m.content for m in play.observe().sent(Generate)[0].context.tail[-2:]] == ["one", "two"]


def test_a_queued_task_can_be_paused() -> None:
    play = Rehearsal().hear(PauseTask()).start()
    assert play.task.phase == "paused"


def test_the_deadline_ends_a_running_task_and_spares_one_that_was_parked() -> None:
    play = Rehearsal(limits=Limits(wall_clock_s=60)).start().wait(30).hear(ExpireTask())
    assert [e.seconds for e in play.last.effects if isinstance(e, SetDeadline)] == [30]
    assert play.wait(31).hear(ExpireTask()).task.reason == "wall_clock_exhausted"


def test_cancel_abandons_what_is_in_flight_and_is_final() -> None:
    play = Rehearsal().start().propose().hear(CancelTask(reason="enough"))
    assert (play.task.outcome, play.task.detail) == ("cancelled", "enough")
    assert Abandon() in play.last.effects
    assert play.observe().last.events == []
    assert play.hear(CancelTask()).last.events == []


def test_who_cancelled_a_task_is_told_in_its_end() -> None:
    play = Rehearsal().start().hear(CancelTask(reason="enough", by="ada"))
    ended = play.events[-1]
    assert (ended.detail, ended.by) == ("cancelled by ada: enough", "ada")
    assert play.sent(TaskEnded)[0].detail == "cancelled by ada: enough"


def test_a_queued_task_can_be_cancelled() -> None:
    assert Rehearsal().hear(CancelTask()).task.outcome == "cancelled"


def test_messages_are_shown_in_order_before_the_next_model_call() -> None:
    play = Rehearsal().start().hear(MessageTask(text="one")).propose().hear(MessageTask(text="two")).observe()
    assert [m.content for m in play.sent(Generate)[0].context.tail[-2:]] == ["one", "two"]
    play.step()
    assert [m.content for m in play.sent(Generate)[0].context.tail].count("one") == 1


def test_approval_parks_the_task_and_a_yes_carries_the_action_out() -> None:
    play = Rehearsal(approvals="always").start().propose(command="rm a")
    assert play.task.phase == "awaiting_approval"
    assert not play.sent(ExecuteAction)
    play.wait(10_000).hear(ApproveAction(step=1, approved=True, by="ada"))
    assert [x.approved for x in play.sent(ExecuteAction)] == [True]
    assert play.task.running_s(play.now) == 0


def test_a_no_is_an_observation() -> None:
    play = (
        Rehearsal(approvals="always")
        .start()
        .propose()
        .hear(ApproveAction(step=1, approved=False, reason="risky", by="ada"))
    )
    assert play.task.phase == "thinking"
    assert "ada did not approve this action. Reason: risky" in play.sent(Generate)[0].context.tail[-1].content


def test_an_approval_of_another_step_is_ignored() -> None:
    play = Rehearsal(approvals="always").start().propose().hear(ApproveAction(step=2, approved=True))
    assert play.task.phase == "awaiting_approval"


def test_an_interrupted_unsafe_tool_waits_for_a_person() -> None:
    play = Rehearsal().start().propose().hear(ActionExecuted(step=1, needs_review=True))
    assert play.task.phase == "awaiting_approval"
    assert play.hear(ApproveAction(step=1, approved=True)).task.phase == "acting"


def test_a_traceback_is_read_and_the_correction_follows() -> None:
    text = "Traceback (most recent call last):\n  File \"/w/a.py\", line 3, in <module>\nKeyError: 'amount'"
    play = Rehearsal().start().step(text, "failed")
    assert play.task.failed_step == 1
    assert "It raised KeyError at /w/a.py:3" in play.sent(Generate)[0].context.tail[-1].content


def test_the_same_failing_call_is_nudged_then_stopped() -> None:
    play = Rehearsal().start()
    for _ in range(3):
        play.step("boom", "failed", command="x")
    assert [event.rule for event in play.events if hasattr(event, "rule")] == ["same_error"]
    assert play.step("boom", "failed", command="x").task.reason == "stuck"


def test_token_spikes_trip_the_breaker() -> None:
    play = Rehearsal(limits=Limits(tokens=10**9)).start()
    for tokens in (100, 100, 100, 50_000):
        play.propose(usage=Usage(output_tokens=tokens), command=str(tokens)).observe(str(tokens))
    assert play.task.phase == "thinking"
    play.step(command="calm")
    assert play.propose(usage=Usage(output_tokens=50_000)).task.reason == "stuck"


def test_recall_reads_an_earlier_step_and_refuses_nonsense() -> None:
    play = Rehearsal().start().step("first").propose("recall", step=True)
    assert "no step True" in play.sent(Generate)[0].context.tail[-1].content


def test_the_state_is_the_fold_of_the_stored_events() -> None:
    play = Rehearsal(checks=CHECKS).start().step("x").babble().hear(MessageTask(text="hi")).submit(False).submit(True)
    stored = [store(event) for event in play.events]
    first = Task(id="task_1", session_id="session_1", tenant="default", submit=SubmitTask(instruction="x"))
    assert fold(first, [load(*row) for row in stored]) == play.task
    assert play.task.seq == len(stored)


def test_a_fork_starts_from_the_sources_context_and_workspace() -> None:
    source = Rehearsal().start().step("3 lines").task
    fork = Rehearsal(SubmitTask(instruction="Now the words.", fork_of=("task_1", 1)), source).start()
    tail = fork.sent(Generate)[0].context.tail
    assert tail[-1] == Message(role="user", content="Now the words.")
    assert "3 lines" in [m.content for m in tail]


def test_every_command_of_a_transition_has_a_step_and_a_phase() -> None:
    play = Rehearsal().start().propose()
    assert [(d.phase, d.command.step) for d in play.last.effects if isinstance(d, Dispatch)] == [("execute", 1)]
    assert play.now == NOON
