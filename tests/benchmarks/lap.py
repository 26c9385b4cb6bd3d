"""What a contender did in one round, and what is said of many."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Lap:
    """Some tasks of the same length, carried out at the same time."""

    cycles: Sequence[float]
    """Seconds from the start of a step's model call to the start of the next one's, over all steps of all tasks."""
    wall_s: float
    """From the first submission to the last task's end."""


class Contender(Protocol):
    """Somebody who carries durable steps out."""

    name: str

    def run(self, steps: int, tasks: int) -> Lap:
        """Carry ``tasks`` tasks of ``steps`` steps out, all at once."""


@dataclass(frozen=True)
class Result:
    """The laps of one contender at one size of work."""

    name: str
    steps: int
    tasks: int
    laps: tuple[Lap, ...]

    def millis(self, share: float) -> float:
        """A percentile of the time of a step; ``share`` is between 0 and 1."""
        return 1e3 * percentile([cycle for lap in self.laps for cycle in lap.cycles], share)

    def rate(self) -> float:
        """Steps a second, over the wall clock of all laps."""
        return self.steps * self.tasks * len(self.laps) / sum(lap.wall_s for lap in self.laps)


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that is not below ``share`` of all of them (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
