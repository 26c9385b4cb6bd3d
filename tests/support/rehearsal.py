"""A task played through the planner's pure transitions, with a clock of its own and no service."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from longstride.agent.admission import accept
from longstride.agent.decision import Decision, Dispatch, Reply, Send
from longstride.agent.task import Task
from longstride.agent.transitions import TRANSITIONS, on_subtask_ended, start
from longstride.contracts.model import Contract
from longstride.contracts.v1.action import Action, CheckResult, Observation, Usage
from longstride.contracts.v1.commands import SubmitTask
from longstride.contracts.v1.events import ActionExecuted, Generated, TaskEnded
from longstride.contracts.v1.tool_rules import RulesInForce

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


class Rehearsal:
    """Feeds messages to a task; remembers every decision."""

    def __init__(
        self,
        submit: SubmitTask | str = "Count the lines.",
        source: Task | None = None,
        rules: RulesInForce | None = None,
        recent_calls: Callable[[str], int] = lambda tool: 0,
        **fields: Any,
    ) -> None:
        submit = submit if isinstance(submit, SubmitTask) else SubmitTask(instruction=submit, **fields)
        self.now = NOON
        self.decisions = [accept("task_1", "session_1", "default", submit, NOON, source, rules)]
        self._recent_calls = recent_calls

    @property
    def task(self) -> Task:
        return self.decisions[-1].task

    @property
    def last(self) -> Decision:
        return self.decisions[-1]

    @property
    def events(self) -> list[Any]:
        return [event for decision in self.decisions for event in decision.events]

    def sent(self, kind: type) -> list[Any]:
        """Messages of a kind that the last decision sends."""
        out = [effect.message for effect in self.last.effects if isinstance(effect, Send | Reply)]
        out += [effect.command for effect in self.last.effects if isinstance(effect, Dispatch)]
        return [message for message in out if isinstance(message, kind)]

    def start(self) -> "Rehearsal":
        return self._decide(start)

    def hear(self, message: Contract, sent: datetime | None = None) -> "Rehearsal":
        return self._decide(TRANSITIONS[type(message)], message, sent=sent)

    def part_ended(self, task_id: str, answer: str = "42", **fields: Any) -> "Rehearsal":
        ended = TaskEnded(**{"outcome": "succeeded", "reason": "submitted", "answer": answer, **fields})
        return self._decide(on_subtask_ended, ended, task_id)

    def propose(self, tool: str = "shell", usage: Usage = Usage(), **arguments: Any) -> "Rehearsal":
        action = Action(tool=tool, arguments=arguments)
        text = f"{tool} {arguments}"[:1000]
        return self.hear(Generated(step=self.task.step, text=text, action=action, policy="test", usage=usage))

    def babble(self) -> "Rehearsal":
        return self.hear(Generated(step=self.task.step, text="well…", format_error="not JSON", policy="test"))

    def observe(self, text: str = "done", status: str = "ok", **fields: Any) -> "Rehearsal":
        seen = Observation(status=status, text=text)
        return self.hear(ActionExecuted(step=self.task.step, observation=seen, **fields))

    def step(self, text: str = "done", status: str = "ok", **arguments: Any) -> "Rehearsal":
        return self.propose(**arguments).observe(text, status)

    def submit(self, *passed: bool) -> "Rehearsal":
        checks = tuple(CheckResult(name=f"c{i}", passed=ok, score=float(ok)) for i, ok in enumerate(passed))
        return self.propose("submit", answer="7").observe("submitted", checks=checks)

    def wait(self, seconds: float) -> "Rehearsal":
        self.now += timedelta(seconds=seconds)
        return self

    def _decide(self, transition: Any, *arguments: Any, sent: datetime | None = None) -> "Rehearsal":
        decision = Decision(self.task, self.now, sent, recent_calls=self._recent_calls)
        transition(decision, *arguments)
        self.decisions.append(decision)
        return self
