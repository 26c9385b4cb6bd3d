"""A step as lines of text: what was done, what came of it, and what both took."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from longstride.agent.events import Ended
from longstride.agent.reflect import RAISED
from longstride.client.screen import units
from longstride.client.screen.safe import one_line
from longstride.client.screen.symbols import Symbols
from longstride.client.screen.verdict import verdict
from longstride.client.step_view import StepView
from longstride.contracts.v1.action import Action, CheckResult, Observation
from longstride.contracts.v1.egress import LISTED, Connection, Traffic
from longstride.contracts.v1.events import TaskEnded

TOOL = 13
"""Columns of a tool's name; results and notes are indented to the same column."""
ANSWER = 80
"""Characters of an answer in the last line; ``show`` has the whole."""
EXIT_CODE = re.compile(r"exit code -?\d+")
"""How tools end the output of a command that failed; the label says it already."""
NOTE = 8 + TOOL
"""Columns before a note."""
CHECK_LINES = 4
"""Of what a failed check says; the foot of ``show`` has the whole."""
RIGHT = 19
"""Columns at the right edge for tokens and time."""


@dataclass(frozen=True, slots=True)
class StepLines:
    """Lays steps out for a width."""

    width: int
    marks: Symbols

    def proposed(self, step: StepView) -> Iterator[Text]:
        """The policy has answered."""
        if step.new_plan:
            yield self._note(
                "plan", f" {self.marks.dot} ".join(f"{i} {item}" for i, item in enumerate(step.new_plan, 1)), "faint"
            )
        if step.action and step.action.thought:
            yield self._note("thought", step.action.thought, "thought")
        cost = f"{units.tokens(step.model_usage.tokens)}  {units.seconds(step.model_s):>7}"
        if step.status == "thinking":
            yield self._row(step, "faint", "no reply", "", "")
        elif step.action is None:
            yield self._row(step, "bad", "not an action", step.text, cost)
            yield self._note(self.marks.hint, step.format_error or "", "bad")
        else:
            yield self._row(step, "strong", step.action.tool, arguments(step.action), cost)

    def _row(self, step: StepView, style: str, name: str, text: str, cost: str) -> Text:
        mark = (self.marks.mend, "mend") if step.corrects else (self.marks.step, "faint")
        head = Text.assemble((f"{step.number:>4} ", "faint"), mark, " ", (f"{one_line(name):<{TOOL}} ", style))
        head.append(one_line(text))
        return self._aligned(head, cost)

    def _aligned(self, left: Text, right: str) -> Text:
        room = max(20, self.width - RIGHT - 1)
        left.truncate(room, overflow="ellipsis")
        left.append(" " * (room - cell_len(left.plain)))
        return left.append(f"{right:>{RIGHT}}", "faint")

    def _note(self, name: str, text: str, style: str) -> Text:
        line = Text.assemble(" " * 7, (f"{one_line(name):<{TOOL}} ", "faint"), (one_line(text), style))
        line.truncate(self.width, overflow="ellipsis")
        return line

    def _whole(self, name: str, text: str, style: str, most: int | None = None) -> Iterator[Text]:
        """A note that is wrapped rather than cut, to ``most`` lines: somebody has to act on it."""
        lines = wrapped(one_line(text), max(20, self.width - NOTE))
        if most and len(lines) > most:
            lines = [*lines[: most - 1], " ".join(lines[most - 1 :])]
        for index, line in enumerate(lines):
            yield self._note(name if index == 0 else "", line, style)

    def waiting(self, step: StepView) -> Iterator[Text]:
        """A person is asked."""
        yield self._result(self.marks.wait, "mend", "waiting", step.question or "for approval", "")

    def decided(self, step: StepView) -> Iterator[Text]:
        """A person has answered."""
        yield self._note("", step.decision or "", "mend")

    def observed(self, step: StepView) -> Iterator[Text]:
        """The action's result, its checks, and what the planner read in them."""
        seen = step.observation
        assert seen is not None, "only shown once observed"
        good = seen.status == "ok" and all(check.passed for check in step.checks)
        mark, style = (self.marks.good, "good") if good else (self.marks.bad, "bad")
        text = gist(seen) if good or not step.checks else tally(step.checks)
        yield self._result(mark, style, "ok" if good else _failure(seen), text, units.seconds(step.tool_s))
        for result in step.checks:
            yield from self.check(result)
        if step.reflection and not step.checks:
            yield self._note(self.marks.hint, step.reflection, "mend")

    def network(self, step: StepView, most: int = LISTED) -> Iterator[Text]:
        """What the step's programs asked of the network."""
        seen = step.traffic or Traffic()
        for one in seen.connections[:most]:
            yield self._note("network", _connection(one), "" if one.verdict == "allowed" else "bad")
        if more := seen.total - len(seen.connections[:most]):
            told = f"and {more} more, of {seen.total} in all; {seen.refused} refused"
            yield self._note("network", told + (": see the task's artifacts" if seen.log else ""), "faint")

    def _result(self, mark: str, style: str, label: str, text: str, cost: str) -> Text:
        head = Text.assemble(" " * 5, (mark, style), " ", (f"{label:<{TOOL}} ", style))
        head.append(one_line(text), "" if style == "good" else style)
        return self._aligned(head, cost)

    def check(self, result: CheckResult) -> Iterator[Text]:
        """One check of a submission."""
        mark, style = (self.marks.good, "good") if result.passed else (self.marks.bad, "bad")
        told = result.error or result.detail or ("passed" if result.passed else "failed")
        partly = f"  {result.score:.2f}" if 0 < result.score < 1 else ""
        lines = 1 if result.passed else CHECK_LINES
        yield from self._whole("check", f"{mark} {result.name}  {told}{partly}", style, lines)

    def delegated(self, step: StepView) -> Iterator[Text]:
        """The parts that other agents work on."""
        for part in step.subtasks:
            needs = f"  after {', '.join(part.after)}" if part.after else ""
            yield self._note(part.name, f"{units.short(part.task_id)}  {part.instruction}{needs}", "")

    def note(self, name: str, text: str, style: str = "") -> Text:
        """A remark between steps."""
        return self._note(name, text, style)

    def ended(self, end: Ended | TaskEnded, answer: str | None, spent: str = "") -> Iterator[Text]:
        """How the task ended, and what it took."""
        found = verdict(end.outcome, end.reason)
        mark = self.marks.open if found.unchecked else self.marks.good if found.style == "good" else self.marks.bad
        line = Text.assemble(" " * 5, (f"{mark} {found.text:<{TOOL}} ", f"{found.style}.end"))
        told = [] if found.unchecked else [end.reason.replace("_", " ")]
        told += [f"answer {_cut(answer)}" + ("" if end.outcome == "succeeded" else ", not accepted")] if answer else []
        told += [f"reward {units.reward(end.reward)}"] if end.reward is not None else []
        told = ["", *told] if found.unchecked and told else told
        line.append(f" {self.marks.dot} ".join(told).removeprefix(" "))
        yield line
        if end.detail and end.outcome != "succeeded":
            yield from self._whole("", end.detail, found.style)
        if spent:
            yield self._note("", spent, "faint")


def wrapped(text: str, room: int) -> list[str]:
    """Lines of at the most so many columns, broken between words where words fit."""
    console = Console(width=room, color_system=None, legacy_windows=False)
    return [line.plain.rstrip() for line in Text(text).wrap(console, room)]


def _connection(one: Connection) -> str:
    where = f"{one.host}:{one.port}" if one.host else "(no host)"
    if one.verdict != "allowed":
        return f"{where} {one.verdict}: {one.why}"
    moved = f"{units.size(one.sent)} sent, {units.size(one.received)} received"
    # The executor answers for the package index itself.
    place = f"{where} at {one.address}" if one.address else where
    return f"{place}: {moved}, {one.why}"


def _failure(seen: Observation) -> str:
    """Of an action, or of the checks of a submission that was itself in order."""
    if seen.status == "ok":
        return "failed"
    return seen.status + (f" exit {seen.exit_code}" if seen.exit_code else "")


def tally(checks: Sequence[CheckResult]) -> str:
    """How many passed, and which did not."""
    told = [f"{sum(check.passed for check in checks)} of {len(checks)} checks passed"]
    for word, names in (
        ("failed", [check.name for check in checks if not check.passed and not check.error]),
        ("could not run", [check.name for check in checks if check.error]),
    ):
        told += [f"{', '.join(names)} {word}"] if names else []
    return "; ".join(told)


def _cut(answer: str) -> str:
    shown = one_line(answer)
    return shown if len(shown) <= ANSWER else shown[: ANSWER - 1] + "…"


def arguments(action: Action) -> str:
    """A single argument alone, several as ``name=value``."""
    if len(action.arguments) == 1:
        return str(next(iter(action.arguments.values())))
    return "  ".join(f"{name}={value!s}" for name, value in action.arguments.items())


def gist(seen: Observation) -> str:
    """The line of an output that says most: the first of a result; of a failure the exception, or else the last."""
    lines = [line.strip() for line in seen.text.splitlines() if line.strip()]
    if seen.status == "ok":
        more = len(lines) - 1
        return (lines[0] if lines else "(no output)") + (
            f" (+{more} line{'s' if more > 1 else ''})" if more > 0 else ""
        )
    raised = [match[0] for match in RAISED.finditer(seen.text)]
    said = raised or [line for line in lines if not EXIT_CODE.fullmatch(line)] or lines
    last = said[-1] if said else ""
    return ": ".join(filter(None, [seen.limit if seen.limit and seen.limit not in last else "", last]))
