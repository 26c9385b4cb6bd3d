"""Budgets that all tool calls of a task share: what each call is given, and how the task ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.agent.allowance import after, parted, used_up
from longstride.agent.number import plain
from longstride.contracts.envelope import seal
from longstride.contracts.v1.action import Usage
from longstride.contracts.v1.audit_entry import ActionEntry
from longstride.contracts.v1.commands import ExecuteAction, Generate, SubmitTask
from longstride.contracts.v1.egress import Egress, EgressRule
from longstride.contracts.v1.events import ActionExecuted, TaskEnded
from longstride.contracts.v1.limits import Allowance, Limits, SandboxLimits, Share
from services.planner.audit_trail import entries
from tests.support.rehearsal import Rehearsal

OWN = SandboxLimits(cpu_s=60, wall_s=100, output_mb=16)
WAY_OUT = Egress(rules=(EgressRule(host="api.example.com"),), max_mbytes=8)
MIB = 1 << 20


def asked(play: Rehearsal) -> ExecuteAction:
    (command,) = play.propose(command=f"echo {play.task.step}").sent(ExecuteAction)
    return command


def test_a_task_without_such_budgets_gives_each_call_its_own_limits() -> None:
    play = Rehearsal(sandbox=OWN, egress=WAY_OUT).start()
    play.propose().observe(usage=Usage(cpu_ms=1e9, wall_ms=1e9, output_bytes=1 << 40))
    command = asked(play)
    assert (command.limits, command.egress, command.allowance) == (OWN, WAY_OUT, None)


def test_a_call_is_held_at_what_earlier_calls_have_left() -> None:
    limits = Limits(cpu_s=70, tool_s=120, output_mb=2, sent_mb=1, received_mb=3)
    play = Rehearsal(limits=limits, sandbox=OWN, egress=WAY_OUT).start()
    first = asked(play)
    assert (first.limits.cpu_s, first.limits.wall_s, first.limits.output_mb) == (60, 100, 2)
    used = Usage(cpu_ms=55_500, wall_ms=30_000, output_bytes=MIB // 2, sent_bytes=MIB // 4, received_bytes=MIB)
    play.observe(usage=used)
    second = asked(play)
    assert second.limits == OWN.model_copy(update={"cpu_s": 14.5, "wall_s": 90, "output_mb": 1.5})
    assert second.egress == WAY_OUT.model_copy(update={"sent_bytes": 3 * MIB // 4, "received_bytes": 2 * MIB})
    assert second.allowance == Allowance(
        cpu_s=Share(most=70, left=14.5),
        tool_s=Share(most=120, left=90),
        output_mb=Share(most=2, left=1.5),
        sent_mb=Share(most=1, left=0.75),
        received_mb=Share(most=3, left=2),
    )


@pytest.mark.parametrize(
    ("budget", "used", "reason", "detail"),
    [
        ({"cpu_s": 2}, Usage(cpu_ms=2010), "cpu_exhausted", "2.01 of 2 CPU seconds of tool calls used"),
        ({"tool_s": 2}, Usage(wall_ms=2000), "tool_time_exhausted", "2 of 2 seconds of tool calls used"),
        ({"output_mb": 1}, Usage(output_bytes=MIB), "output_exhausted", "1 of 1 MiB of tool output used"),
        ({"sent_mb": 1}, Usage(sent_bytes=MIB), "network_exhausted", "1 of 1 MiB sent over the network used"),
        (
            {"received_mb": 0.5},
            Usage(received_bytes=MIB),
            "network_exhausted",
            "1 of 0.5 MiB received over the network used",
        ),
    ],
)
def test_a_task_that_has_used_one_up_ends(budget: dict[str, float], used: Usage, reason: str, detail: str) -> None:
    play = Rehearsal(limits=Limits(**budget)).start().propose().observe(usage=used)
    ended = play.sent(TaskEnded)[0]
    assert (ended.outcome, ended.reason, ended.detail) == ("failed", reason, detail)
    assert ended.tool_usage == used


def test_less_than_a_byte_left_is_nothing() -> None:
    """0.1 MiB are 104857.6 bytes."""
    limits = Limits(sent_mb=0.1)
    play = Rehearsal(limits=limits, egress=WAY_OUT).start().propose().observe(usage=Usage(sent_bytes=104_856))
    command = asked(play)
    assert command.egress is not None
    assert command.egress.sent_bytes == 1
    assert used_up(command.allowance) is None
    left = after(command.allowance or Allowance(), Usage(sent_bytes=1))
    assert getattr(used_up(left), "name", None) == "sent_mb"
    ended = play.observe("again", usage=Usage(sent_bytes=1)).sent(TaskEnded)[0]
    assert (ended.reason, ended.detail) == (
        "network_exhausted",
        "0.0999994278 of 0.1 MiB sent over the network used",
    )


def test_a_sub_tasks_share_of_nothing_is_used_up_by_one_byte() -> None:
    shares = parted(Limits(sent_mb=1), Usage(sent_bytes=MIB), 3)
    play = Rehearsal(limits=Limits(**shares), egress=WAY_OUT).start().propose().observe(usage=Usage(sent_bytes=1))
    assert play.sent(TaskEnded)[0].reason == "network_exhausted"


@pytest.mark.parametrize(
    ("amount", "digits", "told"),
    [(1500, 3, "1500"), (1234567, 10, "1234567"), (12.345, 3, "12.3"), (0.00001, 10, "0.00001"), (0, 3, "0")],
)
def test_numbers_have_no_exponent(amount: float, digits: int, told: str) -> None:
    assert plain(amount, digits) == told


def test_the_agent_is_told_large_budgets_in_full() -> None:
    told = Rehearsal(limits=Limits(tool_s=1234567)).start().sent(Generate)[0].context.tail[1].content
    assert "1234567 seconds of tool calls;" in told


def test_a_submission_that_takes_the_last_of_it_and_passes_succeeds() -> None:
    play = Rehearsal(limits=Limits(cpu_s=1)).start().propose("submit", answer="7")
    assert play.observe(usage=Usage(cpu_ms=1000)).task.outcome == "succeeded"


def test_model_calls_take_nothing_of_them() -> None:
    play = Rehearsal(limits=Limits(tool_s=1, cpu_s=1)).start().propose(usage=Usage(cpu_ms=5000, wall_ms=5000))
    play.observe()
    assert play.sent(Generate)


@given(st.lists(st.floats(0, 40), max_size=12), st.floats(0.1, 100))
def test_no_call_is_given_more_than_is_left(taken: list[float], most: float) -> None:
    play, total = Rehearsal(limits=Limits(cpu_s=most), sandbox=OWN).start(), 0.0
    for seconds in taken:
        if play.task.ended:
            break
        assert asked(play).limits.cpu_s <= min(60, most - total + 1e-9)
        play.observe(f"after {play.task.step}", usage=Usage(cpu_ms=seconds * 1e3))
        total += seconds
    if total > most + 1e-9:
        assert play.task.reason == "cpu_exhausted"


PARTS = [{"name": "a", "instruction": "A"}, {"name": "b", "instruction": "B"}]


def test_sub_tasks_share_what_is_left_and_what_they_used_is_gone() -> None:
    play = Rehearsal(limits=Limits(cpu_s=10, output_mb=4)).start().propose().observe(usage=Usage(cpu_ms=4000))
    play.propose("delegate", tasks=PARTS)
    given = [(part.limits.cpu_s, part.limits.output_mb, part.limits.tool_s) for part in play.sent(SubmitTask)]
    assert given == [(3, 2, None), (3, 2, None)]
    spent = Usage(cpu_ms=9000, wall_ms=9000)
    for part in play.task.subtasks:
        play.part_ended(part.spec.task_id, usage=spent, tool_usage=Usage(cpu_ms=2000))
    assert asked(play).allowance == Allowance(cpu_s=Share(most=10, left=2), output_mb=Share(most=4, left=4))


def test_the_agent_knows_of_them_from_the_start() -> None:
    told = Rehearsal(limits=Limits(cpu_s=120, output_mb=2)).start().sent(Generate)[0].context.tail[1].content
    assert told.endswith(
        "All calls together may use 120 CPU seconds of tool calls, 2 MiB of tool output; then the task is over."
    )


def test_the_audit_says_what_an_action_was_given() -> None:
    play = Rehearsal(limits=Limits(cpu_s=2), sandbox=OWN).start()
    play.propose().observe(usage=Usage(cpu_ms=500)).propose().observe(usage=Usage(cpu_ms=100))
    trail = [entry for decision in play.decisions for entry in entries(decision, seal(ActionExecuted(step=1)))]
    actions = [entry for entry in trail if isinstance(entry, ActionEntry)]
    assert [entry.limits.cpu_s for entry in actions] == [2, 1.5]
    assert actions[1].allowance == Allowance(cpu_s=Share(most=2, left=1.5))
