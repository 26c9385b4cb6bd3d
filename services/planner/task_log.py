"""Tasks as PostgreSQL holds them: a head to lock, and the events to fold."""

import threading
from collections import OrderedDict
from dataclasses import replace

from longstride.agent import events as e
from longstride.agent.decision import Decision
from longstride.agent.task import Phase, Task, fold
from longstride.contracts.v1.commands import SubmitTask
from longstride.storage.events import StoredEvent
from longstride.storage.tasks import TaskHead
from longstride.storage.unit_of_work import UnitOfWork

STATUS: dict[Phase, str] = {
    "queued": "queued",
    "thinking": "running",
    "acting": "running",
    "ready": "running",
    "awaiting_approval": "parked",
    "awaiting_subtasks": "parked",
    "paused": "parked",
}
"""What a phase is in the head. A parked task takes no place among the running ones."""


class TaskLog:
    """Folds tasks from their events. What was folded is kept, so that a transition reads only what is new."""

    def __init__(self, kept: int = 1024) -> None:
        self._kept = kept
        self._folded: OrderedDict[str, Task] = OrderedDict()
        self._lock = threading.Lock()

    def load(self, uow: UnitOfWork, task_id: str) -> tuple[TaskHead, Task] | None:
        """The task, locked until the transaction ends; ``None`` when there is none."""
        head = uow.tasks.head(task_id)
        return None if head is None else (head, self._fold(uow, head))

    def read(self, uow: UnitOfWork, task_id: str, step: int) -> Task | None:
        """The state of a task right after a step, to fork from; ``None`` when it has no such step."""
        head = uow.tasks.head(task_id, lock=False)
        stored = uow.events.read(task_id) if head else []
        ends = [row.seq for row in stored if row.type == "action_observed" and row.payload["step"] == step]
        return fold(_unborn(head), _events(stored[: ends[-1]])) if head and ends else None

    def create(self, uow: UnitOfWork, head: TaskHead, decision: Decision, causation_id: str) -> None:
        """Write a new task."""
        uow.tasks.insert(_advanced(head, decision.task))
        self._append(uow, decision, 0, causation_id)

    def save(self, uow: UnitOfWork, head: TaskHead, decision: Decision, causation_id: str) -> TaskHead:
        """Append what was decided, and write the head; returns it."""
        advanced = _advanced(head, decision.task)
        self._append(uow, decision, head.version, causation_id)
        uow.tasks.save(advanced, head.version)
        return advanced

    def history(self, uow: UnitOfWork, task_id: str, step: int) -> str | None:
        """The observation of an earlier step, as the agent read it."""
        stored = [
            row for row in uow.events.read(task_id) if row.type == "action_observed" and row.payload["step"] == step
        ]
        return str(stored[-1].payload["observation"]["text"]) if stored else None

    def _fold(self, uow: UnitOfWork, head: TaskHead) -> Task:
        with self._lock:
            known = self._folded.get(head.id)
        if known is None or known.seq > head.version:
            known = _unborn(head)
        if known.seq == head.version:
            return known
        return fold(known, _events(uow.events.read(head.id, after=known.seq)))

    def _append(self, uow: UnitOfWork, decision: Decision, after: int, causation_id: str) -> None:
        uow.events.append(decision.task.id, after, [e.store(event) for event in decision.events], causation_id)
        task = decision.task
        uow.after_commit(lambda: self._remember(task))

    def _remember(self, task: Task) -> None:
        with self._lock:
            if task.ended:
                self._folded.pop(task.id, None)
                return
            known = self._folded.get(task.id)
            if known is None or known.seq < task.seq:
                self._folded[task.id] = task
            self._folded.move_to_end(task.id)
            while len(self._folded) > self._kept:
                self._folded.popitem(last=False)


def _unborn(head: TaskHead) -> Task:
    """The state before the first event, which brings the submission itself."""
    return Task(id=head.id, session_id=head.session_id, tenant=head.tenant, submit=SubmitTask(instruction="-"))


def _events(stored: list[StoredEvent]) -> list[e.TaskEvent]:
    return [e.load(row.type, row.payload) for row in stored]


def _advanced(head: TaskHead, task: Task) -> TaskHead:
    """The head that belongs to a state."""
    return replace(
        head,
        status=task.outcome or STATUS[task.phase],
        version=task.seq,
        outcome=task.outcome,
        reason=task.reason,
        answer=task.answer,
        reward=task.reward,
        steps=task.step,
        input_tokens=task.spent.input_tokens,
        output_tokens=task.spent.output_tokens,
        cost_usd=task.spent.cost_usd,
    )
