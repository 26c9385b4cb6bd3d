"""The live view of running tasks: each step as it happens, and one line of progress where a terminal is."""

import time
from collections.abc import Iterator
from datetime import datetime
from types import TracebackType

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from longstride.agent import events as e
from longstride.client.screen import units
from longstride.client.screen.console import out
from longstride.client.screen.safe import one_line
from longstride.client.screen.step_lines import StepLines
from longstride.client.screen.symbols import symbols
from longstride.client.screen.verdict import verdict
from longstride.client.step_view import History, StepView
from longstride.contracts.v1.commands import UNKNOWN, SubmitTask

DOING = {"thinking": "thinking", "acting": "running", "waiting": "waiting for a person"}


class Card:
    """One task on the screen."""

    def __init__(self, task_id: str, name: str = "") -> None:
        self.task_id = task_id
        self.name = name
        """Stands before each line when several tasks are shown."""
        self.history = History()
        self.submit: SubmitTask | None = None
        self.answer: str | None = None
        self.state = "queued"
        self.began: datetime | None = None
        self.since = time.monotonic()

    def add(self, event: e.TaskEvent) -> None:
        """One more event happened."""
        self.history.add(event)
        self.since = time.monotonic()
        if isinstance(event, e.Submitted):
            self.submit = event.submit
            self.began = event.at
        self.state = self._state(event)
        step = self.history.last
        if isinstance(event, e.ActionObserved) and step:
            self.answer = step.answer if step.answer is not None else self.answer

    def _state(self, event: e.TaskEvent) -> str:
        step = self.history.last
        if isinstance(event, e.Parked):
            return "paused"
        if isinstance(event, e.SubtasksDelegated):
            return "waiting for sub-tasks"
        if step is None or isinstance(event, e.Submitted):
            return self.state
        doing = DOING.get(step.status, "thinking")
        return f"{doing} {step.action.tool}" if doing == "running" and step.action else doing

    @property
    def tokens(self) -> int:
        """Spent so far."""
        return sum(step.usage.tokens for step in self.history.steps.values())


class Progress:
    """The line below the steps: what each task does now and what is left of its budgets."""

    def __init__(self, cards: list[Card]) -> None:
        self._cards = cards
        self._spinner = Spinner("dots")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        running = [card for card in self._cards if not card.history.ended]
        if not running:
            return
        text = self._one(running[0]) if len(running) == 1 else f"{len(running)} tasks run"
        self._spinner.update(text=Text(f" {text}", "faint", no_wrap=True, overflow="ellipsis"))
        yield self._spinner

    def _one(self, card: Card) -> str:
        waited = units.seconds(time.monotonic() - card.since)
        step = card.history.last
        if step is None or card.submit is None:
            return f"{card.state}  {waited}"
        limits = card.submit.limits
        return (
            f"step {step.number}  {one_line(card.state, 40)}  {waited}"
            f"    {step.number} of {limits.steps} steps, {card.tokens:,} of {limits.tokens:,} tokens"
        )


class LiveView:
    """Shows events of tasks as they come. A context manager: it owns the progress line."""

    def __init__(self, task_ids: list[str], console: Console | None = None, intro: bool = True) -> None:
        self._console = console or out()
        several = len(task_ids) > 1
        self.cards = {id: Card(id, units.short(id) if several else "") for id in task_ids}
        self._lines = StepLines(min(self._console.width, 160) - (10 if several else 0), symbols(self._console.encoding))
        self._live = Live(
            Progress(list(self.cards.values())),
            console=self._console,
            transient=True,
            auto_refresh=self._console.is_terminal,
            refresh_per_second=8,
        )
        self._intro = intro

    def __enter__(self) -> "LiveView":
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, task_id: str, _seq: int, event: e.TaskEvent) -> None:
        """One event of one task."""
        card = self.cards[task_id]
        card.add(event)
        for line in self._lines_of(card, event):
            self._console.print(self._prefixed(card, line), no_wrap=True, crop=False, overflow="ignore")

    def _prefixed(self, card: Card, line: Text) -> Text:
        return Text.assemble((f"{card.name}  ", "name"), line) if card.name else line

    def _lines_of(self, card: Card, event: e.TaskEvent) -> Iterator[Text]:
        step = card.history.last
        match event:
            case e.Submitted():
                yield from self._opening(card, event.submit)
            case e.Forked():
                yield self._lines.note("fork", f"of {units.short(event.source)} after step {event.step}", "faint")
            case e.ActionProposed() if step:
                yield from self._lines.proposed(step)
            case e.ApprovalRequested() if step:
                yield from self._lines.waiting(step)
                yield self._lines.note("", self._how_to_approve(card, step), "mend")
            case e.ApprovalDecided() if step:
                yield from self._lines.decided(step)
            case e.ActionObserved() if step:
                yield from self._lines.observed(step)
            case e.SubtasksDelegated() if step:
                yield from self._lines.delegated(step)
            case _:
                yield from self._remarks(card, event)

    def _remarks(self, card: Card, event: e.TaskEvent) -> Iterator[Text]:
        match event:
            case e.SubtaskStarted():
                yield self._lines.note("started", units.short(event.task_id), "faint")
            case e.SubtaskEnded():
                found = verdict(event.outcome, event.reason)
                told = f"{units.short(event.task_id)}  {found.text}  {event.answer or event.reason}"
                yield self._lines.note("ended", told, found.style)
            case e.Nudged():
                yield self._lines.note("nudge", event.text, "mend")
            case e.MessageReceived():
                yield self._lines.note("message", event.text, "name")
            case e.ContextCompacted():
                yield self._lines.note("context", f"compacted to {len(event.messages)} messages", "faint")
            case e.Parked():
                yield self._lines.note("paused", f"longstride resume {units.short(card.task_id)}", "mend")
            case e.Resumed():
                yield self._lines.note("resumed", f"by {event.by}" if event.by != UNKNOWN else "", "mend")
            case e.Ended():
                yield from self._lines.ended(event, card.answer, self._spent(card, event))

    def _spent(self, card: Card, end: e.Ended) -> str:
        dot = f" {symbols(self._console.encoding).dot} "
        took = units.seconds((end.at - card.began).total_seconds()) if card.began else ""
        steps = len(card.history.steps)
        return dot.join(filter(None, [f"{steps} step{'' if steps == 1 else 's'}", f"{card.tokens:,} tokens", took]))

    def _opening(self, card: Card, submit: SubmitTask) -> Iterator[Text]:
        if not self._intro:
            return
        mark = symbols(self._console.encoding).task
        policy = f"policy {submit.policy or 'default'}, {submit.track} track"
        yield Text.assemble((f"{mark} ", "name"), (card.task_id, "name"), ("  " + one_line(policy), "faint"))
        yield Text.assemble("  ", (one_line(submit.instruction, self._lines.width - 2), "strong"))
        files = ", ".join(file.path for file in submit.inputs)
        checks = ", ".join(check.name for check in submit.checks)
        told = [f"{name} {one_line(text)}" for name, text in (("inputs", files), ("checks", checks)) if text]
        if told:
            yield Text("  " + "   ".join(told), "faint")

    def _how_to_approve(self, card: Card, step: StepView) -> str:
        return f"longstride approve {units.short(card.task_id)} --step {step.number} (or --deny)"
