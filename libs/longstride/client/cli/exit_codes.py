"""The exit codes of ``longstride``, as ``longstride --help`` documents them."""

from longstride.contracts.v1.events import Outcome

OK = 0
FAILED = 1
"""A task failed, or something went wrong."""
USAGE = 2
UNREACHABLE = 3
NOT_FOUND = 4
CANCELLED = 5
DETACHED = 130
"""Ctrl-C: the task goes on."""

OUTCOMES: dict[Outcome, int] = {"succeeded": OK, "failed": FAILED, "cancelled": CANCELLED}


def of_outcomes(outcomes: list[Outcome]) -> int:
    """The worst of several: any failure, else any cancellation."""
    codes = {OUTCOMES[outcome] for outcome in outcomes}
    return FAILED if FAILED in codes else max(codes, default=OK)
