"""What became of a task, for people: green is kept for what was checked."""

from typing import NamedTuple

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
