"""Whole services as processes: a task is published, planned, executed, checked, traced, recorded."""

import json

import pytest

from longstride.contracts.ids import new_id
from longstride.contracts.v1.check import AnswerCheck, CommandCheck
from longstride.contracts.v1.commands import (
    ApproveAction,
    CancelTask,
    MessageTask,
    PauseTask,
    RecordFeedback,
    ResumeTask,
    SubmitTask,
)
from longstride.contracts.v1.input_file import InputFile
from longstride.contracts.v1.limits import Limits
from longstride.observability.edges import observed_edges
from tests.support.deployment import LINES_AND_SUBMIT, Deployment
from tests.support.eventually import eventually

CSV = InputFile(path="a.csv", text="a\n1\n2\n")


def test_a_task_corrects_itself_passes_its_checks_and_leaves_its_record(deployment: Deployment) -> None:
    policy = deployment.script(LINES_AND_SUBMIT)
    checks = (AnswerCheck(number=3), CommandCheck(run='test "$(cat "$LONGSTRIDE_ANSWER")" = 3'))
    task_id = deployment.submit(SubmitTask(instruction="Lines?", policy=policy, inputs=(CSV,), checks=checks))
    (head,) = deployment.ended(task_id)
    assert (head.outcome, head.reason, head.answer, head.reward) == ("succeeded", "checks_passed", "3", 1.0)
    steps = deployment.steps(task_id)
    assert [(s.tool, s.status, s.revises) for s in steps] == [
        ("shell", "failed", None),
        ("shell", "ok", 1),
        ("submit", "ok", None),
    ]
    assert "No such file" in (steps[0].observation or "")
    eventually(lambda: _reward(deployment, task_id) == 1.0)


def _reward(deployment: Deployment, task_id: str) -> float | None:
    with deployment.database.begin() as uow:
        latest = uow.rewards.latest(task_id)
        return latest.value if latest else None


def test_a_persons_feedback_is_a_newer_reward(deployment: Deployment) -> None:
    policy = deployment.script([{"tool": "submit", "arguments": {"answer": "x"}}])
    task_id = deployment.submit(SubmitTask(instruction="Say x.", policy=policy))
    deployment.ended(task_id)
    deployment.send(RecordFeedback(score=0.25, by="ada"), task_id)
    eventually(lambda: _reward(deployment, task_id) == 0.25)


def test_the_traces_prove_the_edges_of_the_flow(deployment: Deployment) -> None:
    policy = deployment.script(LINES_AND_SUBMIT)
    task_id = deployment.submit(SubmitTask(instruction="Lines?", policy=policy, inputs=(CSV,)))
    deployment.ended(task_id)
    wanted = {
        "planner -generate-> model-worker",
        "model-worker -generated-> planner",
        "planner -execute_action-> tool-executor",
        "tool-executor -action_executed-> planner",
        "planner -task_ended-> telemetry",
        "planner -task_ended-> planner",
    }

    def edges() -> set[str]:
        with deployment.database.begin() as uow:
            return {str(edge) for edge in observed_edges(uow.spans.for_task(task_id))}

    eventually(lambda: wanted <= edges())
    with deployment.database.begin() as uow:
        spans = uow.spans.for_task(task_id)
    assert len({span.trace_id for span in spans}) == 1
    assert {"invoke_agent longstride", "execute_tool shell", "execute_tool submit"} <= {span.name for span in spans}


def test_cancel_kills_a_running_command_and_ends_the_task(deployment: Deployment) -> None:
    policy = deployment.script([{"tool": "shell", "arguments": {"command": "sleep 1000"}}])
    task_id = deployment.submit(SubmitTask(instruction="Sleep.", policy=policy))
    eventually(lambda: [s.status for s in deployment.steps(task_id)] == ["acting"] and _leased(deployment, task_id))
    deployment.send(CancelTask(reason="enough"), task_id)
    (head,) = deployment.ended(task_id)
    assert (head.outcome, head.reason) == ("cancelled", "cancelled")
    again = deployment.submit(
        SubmitTask(instruction="Go on.", policy=deployment.script(LINES_AND_SUBMIT[1:]), inputs=(CSV,))
    )
    assert deployment.ended(again)[0].outcome == "succeeded", "the slot is free again"


def _leased(deployment: Deployment, task_id: str) -> bool:
    with deployment.database.begin() as uow:
        return uow.attempts.open(task_id, "execute") == "leased"


def test_approvals_a_pause_and_a_message_on_the_way(deployment: Deployment) -> None:
    policy = deployment.script(LINES_AND_SUBMIT[1:])
    task_id = deployment.submit(SubmitTask(instruction="Lines?", policy=policy, inputs=(CSV,), approvals="always"))
    _waits(deployment, task_id, step=1)
    deployment.send(PauseTask(), task_id)
    deployment.send(MessageTask(text="hurry"), task_id)
    deployment.send(ResumeTask(), task_id)
    deployment.send(ApproveAction(step=1, approved=True, by="ada"), task_id)
    _waits(deployment, task_id, step=2)
    deployment.send(ApproveAction(step=2, approved=True, by="ada"), task_id)
    assert deployment.ended(task_id)[0].outcome == "succeeded"


def _waits(deployment: Deployment, task_id: str, step: int) -> None:
    eventually(lambda: [(s.step, s.status) for s in deployment.steps(task_id)][-1:] == [(step, "waiting")])


def test_parts_of_a_task_run_as_tasks_and_their_answers_come_back(deployment: Deployment) -> None:
    rules = [
        {"when": "PART", "do": {"tool": "submit", "arguments": {"answer": "7"}}},
        {"when": "one: 7\\s+two: 7", "do": {"tool": "submit", "arguments": {"answer": "both 7"}}},
        {
            "when": "",
            "do": {
                "tool": "delegate",
                "arguments": {
                    "tasks": [{"name": "one", "instruction": "PART 1"}, {"name": "two", "instruction": "PART 2"}]
                },
            },
        },
    ]
    path = deployment.folder / "delegate.json"
    path.write_text(json.dumps({"version": 1, "rules": rules}))
    submit = SubmitTask(instruction="Both.", policy=f"scripted:{path}", checks=(AnswerCheck(equals="both 7"),))
    task_id = deployment.submit(submit)
    (head,) = deployment.ended(task_id)
    assert (head.outcome, head.answer) == ("succeeded", "both 7")
    with deployment.database.begin() as uow:
        assert [child.outcome for child in uow.tasks.children(task_id)] == ["succeeded", "succeeded"]


def test_a_fork_goes_on_from_an_earlier_step(deployment: Deployment) -> None:
    write = {"tool": "shell", "arguments": {"command": "echo kept > note; cat note"}}
    first = deployment.submit(SubmitTask(instruction="Write.", policy=deployment.script([write, LINES_AND_SUBMIT[2]])))
    deployment.ended(first)
    read = [
        write,
        {"tool": "shell", "arguments": {"command": "cat note"}},
        {"tool": "submit", "arguments": {"answer": "kept"}},
    ]
    fork = SubmitTask(instruction="Read.", fork_of=(first, 1), policy=deployment.script(read))
    second = deployment.submit(fork)
    assert deployment.ended(second)[0].answer == "kept"
    observations = [s.observation for s in deployment.steps(second)]
    assert observations[0] is not None
    assert "kept" in observations[0]


@pytest.mark.parametrize(
    ("lines", "limits", "reason"),
    [
        ([{"say": "well, let me think"}], Limits(format_errors=2), "format_errors_exhausted"),
        ([{"say": ""}], Limits(format_errors=2), "format_errors_exhausted"),
        ([{"hang": 3600}], Limits(model_timeout_s=1), "policy_unavailable"),
        ([{"hang": 3600}], Limits(wall_clock_s=2), "wall_clock_exhausted"),
        ([{"raise": "no model here"}], Limits(), "policy_unavailable"),
        ([{"tool": "shell", "arguments": {"command": "false"}}], Limits(), "stuck"),
        ([{"tool": "fly", "arguments": {}}], Limits(steps=2), "steps_exhausted"),
        (
            [{"tool": "shell", "arguments": {"command": "sleep 60"}}],
            Limits(wall_clock_s=3, steps=2),
            "wall_clock_exhausted",
        ),
    ],
    ids=[
        "garbage",
        "nothing",
        "for ever",
        "longer than the task",
        "unavailable",
        "in circles",
        "unknown tool",
        "too slow",
    ],
)
def test_a_bad_policy_ends_its_task_with_a_reason(
    deployment: Deployment, lines: list[dict[str, object]], limits: Limits, reason: str
) -> None:
    policy = deployment.script(lines, then="repeat")
    task_id = deployment.submit(SubmitTask(instruction="Try.", policy=policy, limits=limits))
    (head,) = deployment.ended(task_id)
    assert (head.outcome, head.reason) == ("failed", reason)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"inputs": ({"path": "a", "ref": {"key": "s/input/" + "0" * 64, "sha256": "0" * 64, "size": 3}},)},
            "input_unusable",
        ),
        ({"checks": (CommandCheck(run="no-such-command-anywhere"),)}, "check_cannot_run"),
        ({"policy": "builtin@999999"}, "policy_unavailable"),
        ({"isolation": "microvm"}, "infrastructure"),
    ],
    ids=["missing input", "broken check", "unknown version of a policy", "isolation not to be had"],
)
def test_what_the_agent_did_not_cause_has_no_reward(
    deployment: Deployment, fields: dict[str, object], reason: str
) -> None:
    policy = deployment.script([LINES_AND_SUBMIT[1], LINES_AND_SUBMIT[2]])
    task_id = deployment.submit(SubmitTask.model_validate({"instruction": "Try.", "policy": policy, **fields}))
    (head,) = deployment.ended(task_id)
    assert (head.outcome, head.reason, head.reward) == ("failed", reason, None)


def test_the_same_idempotency_key_gives_the_same_task(deployment: Deployment) -> None:
    submit = SubmitTask(instruction="x", policy=deployment.script([LINES_AND_SUBMIT[2]]), idempotency_key=new_id("key"))
    first = deployment.submit(submit)
    deployment.ended(first)
    second = deployment.submit(submit)
    after = deployment.submit(SubmitTask(instruction="y", policy=submit.policy))
    deployment.ended(after)
    assert deployment.head(second) is None
