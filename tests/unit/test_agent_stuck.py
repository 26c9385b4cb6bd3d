"""The stuck detector: who goes in circles is told first, when OpenHands would stop it (4, 3 and 6 turns), and then stopped."""

import pytest

from longstride.agent.stuck import verdict
from longstride.agent.task import Turn, turn_of
from longstride.contracts.v1.action import Action, ObservationStatus


def turns(*calls: str) -> tuple[Turn, ...]:
    """``"a=1"``: the call a gave 1; ``"a!1"``: it failed so."""
    return tuple(_turn(number, call) for number, call in enumerate(calls, 1))


def _turn(step: int, call: str) -> Turn:
    command, sign, text = call[0], call[1], call[2:]
    status: ObservationStatus = "ok" if sign == "=" else "failed"
    return turn_of(step, Action(tool="shell", arguments={"command": command}), status, text)


CIRCLES = {
    "the same call, the same result": (["a=1"] * 4, "same_pair", 5),
    "the same call fails, however it says so": (["a!1", "a!2", "a!3"], "same_error", 4),
    "two calls in turns": (["a=1", "b=2"] * 3, "alternating", 8),
}
NO_CIRCLES = {
    "three of the same": ["a=1"] * 3,
    "the same call, another result": ["a=1", "a=2", "a=3", "a=4", "a=5"],
    "two failures": ["a!1"] * 2,
    "different calls fail": ["a!1", "b!1", "c!1", "d!1"],
    "a circle that was left": ["a=1"] * 4 + ["b=1"],
    "two calls in turns that learn something": ["a=1", "b=2", "a=3", "b=4", "a=5", "b=6"],
    "three calls in turns": ["a=1", "b=2", "c=3"] * 3,
    "nothing done yet": [],
}


@pytest.mark.parametrize(("calls", "rule", "_"), CIRCLES.values(), ids=CIRCLES)
def test_a_circle_is_told_of_when_it_closes_and_not_before(calls: list[str], rule: str, _: int) -> None:
    assert verdict(turns(*calls[:-1])) is None
    told = verdict(turns(*calls))
    assert told is not None
    assert (told.rule, told.stop) == (rule, False)
    assert str(len(calls)) in told.text


@pytest.mark.parametrize(("calls", "rule", "stop"), CIRCLES.values(), ids=CIRCLES)
def test_who_goes_on_is_stopped_but_never_before_it_was_told(calls: list[str], rule: str, stop: int) -> None:
    longer = (calls * 3)[:stop]
    assert verdict(turns(*longer[:-1]), nudged=[rule]) is None
    stopped = verdict(turns(*longer), nudged=[rule])
    assert stopped is not None
    assert (stopped.rule, stopped.stop) == (rule, True)
    first = verdict(turns(*longer))
    assert first is not None
    assert not first.stop


@pytest.mark.parametrize("calls", NO_CIRCLES.values(), ids=NO_CIRCLES)
def test_what_is_no_circle_is_left_alone(calls: list[str]) -> None:
    assert verdict(turns(*calls)) is None
