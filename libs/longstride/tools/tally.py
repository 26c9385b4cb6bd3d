"""What a test run said of each test."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

CaseVerdict = Literal["passed", "failed", "error", "skipped"]
WORSE: tuple[CaseVerdict, ...] = ("skipped", "passed", "failed", "error")
MOST_TOLD = 40
"""Tests of one verdict that are named; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Case:
    """One test."""

    name: str
    verdict: CaseVerdict
    detail: str = ""
    """Why it did not pass, in a line."""


@dataclass(frozen=True, slots=True)
class Tally:
    """All tests of a run, each once."""

    cases: tuple[Case, ...]

    @classmethod
    def of(cls, cases: Iterable[Case]) -> "Tally":
        """Where a test is told of more than once, the worst counts."""
        worst: dict[str, Case] = {}
        for case in cases:
            known = worst.get(case.name)
            if known is None or WORSE.index(case.verdict) >= WORSE.index(known.verdict):
                worst[case.name] = case
        return cls(tuple(worst.values()))

    def count(self, verdict: CaseVerdict) -> int:
        """Tests of one verdict."""
        return sum(case.verdict == verdict for case in self.cases)

    @property
    def counted(self) -> int:
        """Tests that were run to a verdict: skipped ones are not."""
        return len(self.cases) - self.count("skipped")

    @property
    def score(self) -> float:
        """The share of the tests that pass; 0 when none was run."""
        return self.count("passed") / self.counted if self.counted else 0.0

    @property
    def good(self) -> bool:
        """At least one was run, and all that were pass."""
        return 0 < self.counted == self.count("passed")

    def text(self) -> str:
        """For the agent: the share first, then what to mend, then what is well."""
        if not self.counted:
            return f"no test was run{f', {len(self.cases)} were skipped' if self.cases else ''}"
        counts = Counter(case.verdict for case in self.cases)
        parts = [f"{counts['failed']} failed", f"{counts['error']} broke", f"{counts['skipped']} skipped"]
        head = f"{counts['passed']} of {self.counted} tests pass (score {self.score:.2f}), {', '.join(parts)}"
        lines = [head, *self._told("error", "broke"), *self._told("failed", "failed")]
        return "\n".join([*lines, *self._named("passed"), *self._named("skipped")])

    def _told(self, verdict: CaseVerdict, word: str) -> list[str]:
        found = [case for case in self.cases if case.verdict == verdict]
        lines = [f"{word}: {case.name}{case.detail and f': {case.detail[:300]}'}" for case in found[:MOST_TOLD]]
        return [*lines, *_more(found)]

    def _named(self, verdict: CaseVerdict) -> list[str]:
        found = [case for case in self.cases if case.verdict == verdict]
        names = ", ".join(case.name for case in found[:MOST_TOLD])
        return [f"{verdict}: {names}", *_more(found)] if found else []


def _more(found: list[Case]) -> list[str]:
    return [f"[and {len(found) - MOST_TOLD} more]"] if len(found) > MOST_TOLD else []
