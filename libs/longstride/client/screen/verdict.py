"""What became of a task, for people: green is kept for what was checked."""

from typing import NamedTuple

from longstride.agent.events import Ended
from longstride.client.screen.safe import one_line

MOST_DETAIL = 200
UNCHECKED = "submitted, nothing checked"
STYLES = {"succeeded": "good", "failed": "bad", "cancelled": "mend", "parked": "mend", "running": "name"}


class Verdict(NamedTuple):
    """A status in words, and its style."""

    text: str
    style: str

    @property
    def unchecked(self) -> bool:
        """Handed in, and nobody knows whether it is right."""
        return self.text == UNCHECKED


def verdict(status: str, reason: str | None) -> Verdict:
    """Of a task's status or outcome, and why it ended."""
    if (status, reason) == ("succeeded", "submitted"):
        return Verdict(UNCHECKED, "mend")
    return Verdict(status, STYLES.get(status, ""))


def ending(end: Ended) -> str:
    """How a task ended, in part of a sentence: ``failed (steps exhausted): after 30 steps``."""
    found = verdict(end.outcome, end.reason)
    why = "" if found.unchecked or end.reason == end.outcome else f" ({end.reason.replace('_', ' ')})"
    detail = one_line(end.detail) if end.outcome != "succeeded" else ""
    said = detail if len(detail) <= MOST_DETAIL else f"{detail[: MOST_DETAIL - 1]}…"
    if said.startswith(found.text):  # "cancelled by anna: wrong file"
        return said
    return found.text + why + (f": {said}" if said else "")
