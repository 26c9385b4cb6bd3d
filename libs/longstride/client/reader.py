"""Reading tasks from PostgreSQL: lists, histories, and what happens while one looks."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from longstride.agent.events import Ended, Submitted, TaskEvent, load
from longstride.agent.task import Task, fold
from longstride.client.errors import NotFound, Unreachable, UsageProblem
from longstride.client.failures import translated
from longstride.storage.attempts import Hindrance
from longstride.storage.database import Database
from longstride.storage.errors import StorageError
from longstride.storage.tasks import TaskHead
from longstride.storage.unit_of_work import UnitOfWork

PAGE = 200
SHORTEST = 4
"""Characters of an abbreviated task id."""
FIRST_POLL_S, LONGEST_POLL_S = 0.03, 0.5
OUTAGE_S = 60.0
"""How long a follower waits for a database that went away."""


class Reader:
    """Reads one database. For one thread."""

    def __init__(
        self, database_url: str, say: Callable[[str], None], revive: Callable[[], None] = lambda: None
    ) -> None:
        """Nothing is connected yet.

        Args:
            database_url: ``postgresql://…``.
            say: gets a sentence when something must be waited for.
            revive: called while a follower waits for a database that went away; may bring it back, or raise.

        Raises:
            UsageProblem: not a PostgreSQL URL.
        """
        try:
            self.database = Database(database_url, pool_size=1, max_overflow=1, application_name="longstride-cli")
        except ValueError as error:
            raise UsageProblem(f"LONGSTRIDE_DATABASE_URL: {error}") from error
        self._say, self._revive = say, revive

    @contextmanager
    def transaction(self) -> Iterator[UnitOfWork]:
        """One transaction.

        Raises:
            Unreachable: PostgreSQL does not answer.
            ClientError: it answered with something else that went wrong.
        """
        with translated(), self.database.begin() as uow:
            yield uow

    def find(self, name: str) -> TaskHead:
        """The task of an id, or of a unique beginning or end of one.

        Raises:
            NotFound: no task has that id.
            UsageProblem: several do.
        """
        with self.transaction() as uow:
            exact = uow.tasks.head(name, lock=False)
            found = [exact] if exact else uow.tasks.matching(name, limit=3) if len(name) >= SHORTEST else []
        if not found:
            raise NotFound(f"no task {name!r}; `longstride tasks` lists them")
        if len(found) > 1:
            raise UsageProblem(f"{name!r} fits several tasks, {', '.join(head.id for head in found)}: give more of it")
        return found[0]

    def head(self, task_id: str) -> TaskHead:
        """The head of a task whose whole id is known.

        Raises:
            NotFound: no such task.
        """
        with self.transaction() as uow:
            head = uow.tasks.head(task_id, lock=False)
        if head is None:
            raise NotFound(f"no task {task_id!r}")
        return head

    def events(self, task_id: str, after: int = 0) -> list[tuple[int, TaskEvent]]:
        """(seq, event) of everything that happened after ``after``."""
        found: list[tuple[int, TaskEvent]] = []
        while True:
            with self.transaction() as uow:
                page = uow.events.read(task_id, after, PAGE)
            found += [(row.seq, load(row.type, row.payload)) for row in page]
            if len(page) < PAGE:
                return found
            after = page[-1].seq

    def state(self, head: TaskHead) -> Task:
        """The task as the planner sees it."""
        happened = [event for _, event in self.events(head.id)]
        assert happened, "a task has events"
        first = happened[0]
        assert isinstance(first, Submitted)
        return fold(Task(head.id, head.session_id, head.tenant, first.submit), happened)

    def follow(self, task_ids: Sequence[str]) -> Iterator[tuple[str, int, TaskEvent]]:
        """(task id, seq, event) of several tasks from their beginnings, as they happen, until all have ended.

        An outage of the database of up to a minute is waited out.
        """
        seen = dict.fromkeys(task_ids, 0)
        pause = FIRST_POLL_S
        hindrances: set[str] = set()
        while seen:
            fresh = [(task_id, *pair) for task_id in tuple(seen) for pair in self._patiently(task_id, seen[task_id])]
            for task_id, seq, event in fresh:
                yield task_id, seq, event
                seen[task_id] = seq
                if is_end(event):
                    del seen[task_id]
            pause = FIRST_POLL_S if fresh else min(pause * 1.5, LONGEST_POLL_S)
            if pause == LONGEST_POLL_S:
                self._tell_hindrances(seen, hindrances)
            if seen:
                time.sleep(pause)

    def hindrance(self, task_id: str) -> Hindrance | None:
        """What the task's worker waits for; ``None``: nothing that is known, as in a database of an older version."""
        try:
            with self.database.begin() as uow:
                return uow.attempts.hindrance(task_id)
        except StorageError:
            return None

    def _tell_hindrances(self, task_ids: Iterable[str], told: set[str]) -> None:
        """Each reason once: nothing happens, and people wonder why."""
        for found in filter(None, map(self.hindrance, task_ids)):
            if found.reason not in told:
                told.add(found.reason)
                self._say(f"it waits: {found.reason}")

    def _patiently(self, task_id: str, after: int) -> list[tuple[int, TaskEvent]]:
        deadline, told = time.monotonic() + OUTAGE_S, False
        while True:
            try:
                return self.events(task_id, after)
            except Unreachable:
                if time.monotonic() > deadline:
                    raise
                if not told:
                    self._say("the database does not answer; waiting for it")
                told = True
                self._revive()
                time.sleep(LONGEST_POLL_S)

    def close(self) -> None:
        """Close the connections."""
        self.database.close()


def is_end(event: TaskEvent) -> bool:
    """Nothing happens to a task after this."""
    return isinstance(event, Ended)
