"""What an agent or an author makes long is cut or told of: no transition leaves a message that no envelope holds."""

import pytest

from longstride.agent.message_room import OF_CHECKS, fits, size, with_room
from longstride.contracts.artifact import NamedArtifact, ref_for
from longstride.contracts.envelope import MAX_BYTES, seal
from longstride.contracts.v1.action import CheckResult, Observation
from longstride.contracts.v1.check import AnswerCheck
from longstride.contracts.v1.commands import ExecuteAction, Generate, SubmitTask
from longstride.contracts.v1.environment import Environment
from longstride.contracts.v1.events import ActionExecuted, TaskEnded
from tests.support.rehearsal import Rehearsal

ABOUT = {"task_id": "task_" + "1" * 32, "session_id": "session_" + "1" * 32, "tenant": "t" * 128}


def encoded(message: object) -> int:
    return len(seal(message, **ABOUT).encode())  # type: ignore[arg-type]


LONG = [
    "x" * 40_000,
    "é" * 32_000,
    "\x1b" * 30_000,
    "\U0001f600" * 16_000,
]


@pytest.mark.parametrize("text", LONG)
def test_a_part_that_no_message_holds_is_told_to_the_agent(text: str) -> None:
    play = Rehearsal().start().propose("delegate", tasks=[{"name": "a", "instruction": text}])
    assert play.sent(SubmitTask) == []
    assert "file" in play.sent(Generate)[0].context.tail[-1].content


def test_a_part_has_a_short_name() -> None:
    play = Rehearsal().start().propose("delegate", tasks=[{"name": "n" * 65, "instruction": "A"}])
    assert "more than 64 characters" in play.sent(Generate)[0].context.tail[-1].content


@pytest.mark.parametrize("answer", ["x" * 8192, "é" * 8192, "\x01" * 8192, "\U0001f600" * 8192])
def test_what_earlier_parts_said_goes_along_as_far_as_there_is_room(answer: str) -> None:
    names = [f"p{i}" for i in range(6)]
    parts = [{"name": name, "instruction": "A"} for name in names]
    play = Rehearsal().start().propose("delegate", tasks=[*parts, {"name": "z", "instruction": "Z", "after": names}])
    for name in names:
        play.part_ended({p.spec.name: p.spec.task_id for p in play.task.subtasks}[name], answer)
    (sent,) = play.sent(SubmitTask)
    assert sent.instruction.startswith(f"Z\n\nKnown so far:\np0: {answer[:1000]}")
    assert SubmitTask.model_validate_json(sent.model_dump_json()) == sent
    assert encoded(sent) <= MAX_BYTES


@pytest.mark.parametrize("text", LONG)
def test_a_call_that_no_message_holds_is_told_to_the_agent(text: str) -> None:
    environment = Environment(variables={f"V{i}": "v" * 8000 for i in range(4)})
    play = Rehearsal(environment=environment).start().propose("write_file", path="a", content=text)
    if sent := play.sent(ExecuteAction):
        assert encoded(sent[0]) <= MAX_BYTES
    else:
        assert "write long files in parts" in play.sent(Generate)[0].context.tail[-1].content


def result(number: int, **fields: str) -> CheckResult:
    return CheckResult(name=f"{number:064}", passed=False, score=0.0, **fields)


@pytest.mark.parametrize("sign", ["x", "é", "\x01", "\U0001f600"])
@pytest.mark.parametrize("count", [1, 20, 100])
def test_details_of_checks_share_the_room(count: int, sign: str) -> None:
    checks = with_room([result(i, detail=sign * 4096) for i in range(count)])
    assert sum(map(size, checks)) <= OF_CHECKS
    assert len(checks) == count
    assert {check.detail[:10] for check in checks} == {sign * 10}
    assert with_room([result(1, detail="short")]) == (result(1, detail="short"),)


@pytest.mark.parametrize("sign", ["x", "\x01", "\U0001f600"])
def test_a_broken_check_stays_broken(sign: str) -> None:
    (first, *_) = with_room([result(i, error=sign * 4000) for i in range(100)])
    assert first.error


@pytest.mark.parametrize("sign", ["x", "é", "\x01", "\U0001f600"])
def test_why_a_check_is_broken_is_said_before_its_detail(sign: str) -> None:
    why = "the program is missing"
    checks = with_room([result(i, error=why, detail=sign * 4096) for i in range(20)])
    assert {check.error for check in checks} == {why}
    assert all(check.detail.startswith(sign * 40) for check in checks)
    assert sum(map(size, checks)) <= OF_CHECKS


@pytest.mark.parametrize("sign", ["x", "\x01", "\U0001f600"])
def test_an_outcome_fits_whatever_it_holds(sign: str) -> None:
    checks = tuple(AnswerCheck(name=f"{i:064}", equals="x") for i in range(100))
    artifacts = tuple(
        NamedArtifact(name=f"{i:0250}", ref=ref_for(b"", session="s" * 128, kind="output")) for i in range(60)
    )
    play = Rehearsal(checks=checks).start().propose("submit", answer=sign * (1000 if sign < " " else 8192))
    said = ActionExecuted(
        step=1,
        observation=Observation(status="ok", text="submitted"),
        checks=tuple(
            CheckResult(name=check.name, passed=False, score=0.0, error=sign * 4096, detail=sign * 4096)
            for check in checks
        ),
        artifacts=artifacts,
    )
    ended = play.hear(said).sent(TaskEnded)[0]
    assert fits(ended)
    assert encoded(ended) <= MAX_BYTES
    assert len(ended.checks) == 100
