"""The stuck detector: the agent goes in circles. First it is told, then the task is stopped.

The rules are OpenHands' (openhands/controller/stuck.py), over the last 20 turns. ``process_poll`` needs no exception: what it tells
includes for how long the process has run.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from longstride.agent.task import Turn


class Rule(NamedTuple):
    """When to speak and when to stop, in turns."""

    name: str
    run: Callable[[Sequence[Turn]], int]
    """How long the current run is."""
    nudge: int
    stop: int
    text: str


class Verdict(NamedTuple):
    """What a rule asks for."""

    rule: str
    stop: bool
    text: str


def _same_pair(turns: Sequence[Turn]) -> int:
    return _run(turns, lambda a, b: (a.action, a.outcome) == (b.action, b.outcome))


def _same_error(turns: Sequence[Turn]) -> int:
    return (
        _run(turns, lambda a, b: a.action == b.action and a.status != "ok") if turns and turns[-1].status != "ok" else 0
    )


def _alternating(turns: Sequence[Turn]) -> int:
    """Length of the A-B-A-B run at the end; 0 when A is B."""
    pairs = [(t.action, t.outcome) for t in reversed(turns)]
    if len(pairs) < 2 or pairs[0] == pairs[1]:
        return 0
    length = next((i for i, pair in enumerate(pairs) if pair != pairs[i % 2]), len(pairs))
    return length if length > 2 else 0


def _run(turns: Sequence[Turn], like: Callable[[Turn, Turn], bool]) -> int:
    last = turns[-1] if turns else None
    return next((i for i, turn in enumerate(reversed(turns)) if not like(turn, last)), len(turns)) if last else 0


RULES: tuple[Rule, ...] = (
    Rule(
        "same_error",
        _same_error,
        3,
        4,
        "The same call has failed {n} times in the same way. Read the error, and do something else.",
    ),
    Rule(
        "same_pair",
        _same_pair,
        4,
        5,
        "The same call has given the same result {n} times: do something else, or submit.",
    ),
    Rule(
        "alternating",
        _alternating,
        6,
        8,
        "You alternate between two calls ({n} in a row) and learn nothing new. Change the approach, or submit.",
    ),
)


def verdict(turns: Sequence[Turn], nudged: Sequence[str] = (), rules: Sequence[Rule] = RULES) -> Verdict | None:
    """What the rules say of the turns so far. A rule stops a task only after it has nudged it."""
    for rule in rules:
        length = rule.run(turns)
        if length >= rule.stop and rule.name in nudged:
            return Verdict(rule.name, True, f"{rule.name}: {length} turns")
        if length >= rule.nudge and rule.name not in nudged:
            return Verdict(rule.name, False, rule.text.format(n=length))
    return None
