"""The exit codes of ``longstride``: ``longstride --help`` and the README tell of them from this table."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # the help is printed without what the contracts load
    from longstride.contracts.v1.events import Outcome

OK = 0
FAILED = 1
USAGE = 2
UNREACHABLE = 3
NOT_FOUND = 4
CANCELLED = 5
WRONG_STATE = 6
DETACHED = 130


class ExitCode(NamedTuple):
    """A code, in a word or two, and all that it means."""

    number: int
    word: str
    meaning: str


CODES = (
    ExitCode(OK, "done", "it was done; of tasks that were followed, all succeeded"),
    ExitCode(
        FAILED, "failed", "a task failed, something that was looked at is not as it should be, or something broke"
    ),
    ExitCode(
        USAGE, "wrong usage", "the command line, a file that it names, a setting, or the task itself is not sound"
    ),
    ExitCode(
        UNREACHABLE,
        "unreachable",
        "a server does not answer, the embedded stack does not start, or nobody answered in time; a task that was sent goes on",
    ),
    ExitCode(NOT_FOUND, "no such thing", "there is no such task, step, artifact, tool, …"),
    ExitCode(CANCELLED, "cancelled", "a task that was followed was cancelled, and none failed"),
    ExitCode(
        WRONG_STATE,
        "too late or too early",
        "the task has ended, has not, or waits for no decision; nothing was changed",
    ),
    ExitCode(DETACHED, "Ctrl-C", "a task that was followed goes on"),
)

OUTCOMES: "dict[Outcome, int]" = {"succeeded": OK, "failed": FAILED, "cancelled": CANCELLED}


def of_outcomes(outcomes: "list[Outcome]") -> int:
    """The worst of several: any failure, else any cancellation."""
    codes = {OUTCOMES[outcome] for outcome in outcomes}
    return FAILED if FAILED in codes else max(codes, default=OK)
