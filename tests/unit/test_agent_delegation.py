"""Sub-tasks: independent ones at once, dependent ones after, all within the parent's budget."""

import pytest

from longstride.agent.soundness import objection
from longstride.contracts.v1.action import Usage
from longstride.contracts.v1.commands import CancelTask, Generate, SubmitTask
from longstride.contracts.v1.limits import Limits, SandboxLimits
from tests.support.rehearsal import Rehearsal

PARTS = [
    {"name": "a", "instruction": "A"},
    {"name": "b", "instruction": "B"},
    {"name": "c", "instruction": "C", "after": ["a", "b"]},
]


def ids(play: Rehearsal) -> dict[str, str]:
    return {p.spec.name: p.spec.task_id for p in play.task.subtasks}


def test_independent_parts_start_together_and_dependent_ones_with_their_answers() -> None:
    play = Rehearsal(limits=Limits(tokens=3000)).start().propose("delegate", tasks=PARTS)
    assert [s.instruction for s in play.sent(SubmitTask)] == ["A", "B"]
    assert {s.limits.tokens for s in play.sent(SubmitTask)} == {1000}
    names = ids(play)
    play.part_ended(names["a"], "1")
    assert play.sent(SubmitTask) == []
    play.part_ended(names["b"], "2")
    assert [s.instruction for s in play.sent(SubmitTask)] == ["C\n\nKnown so far:\na: 1\nb: 2"]
    play.part_ended(names["c"], "3")
    assert play.sent(Generate)[0].context.tail[-1].content == "a: 1\nb: 2\nc: 3"


def test_a_failed_part_takes_those_that_need_it_along() -> None:
    play = Rehearsal().start().propose("delegate", tasks=PARTS)
    names = ids(play)
    play.part_ended(names["a"], outcome="failed", reason="stuck").part_ended(names["b"], "2")
    text = play.sent(Generate)[0].context.tail[-1].content
    assert "a: failed (stuck)\nb: 2\nc: cancelled (parent_ended)" in text


def test_a_chain_is_given_up_in_one_transition() -> None:
    chain = [
        {"name": "a", "instruction": "A"},
        {"name": "b", "instruction": "B", "after": ["a"]},
        {"name": "c", "instruction": "C", "after": ["b"]},
    ]
    play = Rehearsal().start().propose("delegate", tasks=chain)
    play.part_ended(ids(play)["a"], outcome="failed", reason="stuck")
    assert play.task.phase == "thinking"


def test_parts_spend_the_parents_budget() -> None:
    play = Rehearsal(limits=Limits(tokens=100)).start().propose("delegate", tasks=PARTS[:1])
    play.part_ended(ids(play)["a"], usage=Usage(output_tokens=100))
    assert play.task.reason == "tokens_exhausted"


def test_a_parents_end_cancels_its_parts() -> None:
    play = Rehearsal().start().propose("delegate", tasks=PARTS).hear(CancelTask())
    assert len(play.sent(CancelTask)) == 2


def test_a_part_that_ends_twice_counts_once() -> None:
    play = Rehearsal().start().propose("delegate", tasks=PARTS[:2])
    a = ids(play)["a"]
    assert (
        play.part_ended(a, usage=Usage(output_tokens=3)).part_ended(a, usage=Usage(output_tokens=3)).task.spent.tokens
        == 3
    )


@pytest.mark.parametrize(
    ("tasks", "why"),
    [
        ("x", "must be a list"),
        ([], "must be a list"),
        ([{"name": "a"}], "needs an instruction"),
        ([{"instruction": "A", "after": "b"}], "must be a list of names"),
        ([{"name": "a", "instruction": "A", "after": ["b"]}], "no earlier part is named"),
        ([{"name": "a", "instruction": "A"}] * 2, "same name"),
        ([{"instruction": "A"}] * 9, "8 of 8 are left"),
    ],
)
def test_an_unsound_request_is_an_observation(tasks: object, why: str) -> None:
    play = Rehearsal().start().propose("delegate", tasks=tasks)
    assert why in play.sent(Generate)[0].context.tail[-1].content


def test_the_parts_of_a_task_that_has_more_than_is_taken_now_may_be_submitted() -> None:
    limits, sandbox = Limits(tokens=10**15, cost_usd=1e20), SandboxLimits(output_bytes=1 << 40)
    play = Rehearsal(limits=limits, sandbox=sandbox).start().propose("delegate", tasks=PARTS)
    assert objection(play.task.submit, ()) is not None
    sent = play.sent(SubmitTask)
    assert [objection(part, ()) for part in sent] == [None, None]
    assert sent[0].sandbox.output_bytes == 64 << 20
