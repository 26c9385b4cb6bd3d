"""Ends the processes of tasks that have ended, and gives up directories that were only kept for processes."""

import logging
from collections.abc import Callable

from longstride.messaging.loop import Loop
from longstride.storage.database import Database
from longstride.tools.household import Households

logger = logging.getLogger(__name__)

EVERY_S = 3.0


class TaskWatch(Loop):
    """Asks the database how the tasks do whose processes live here; with it they all end."""

    def __init__(self, households: Households, database: Database, every_s: float = EVERY_S) -> None:
        super().__init__("ended tasks' processes", self._look, every_s)
        self._households = households
        self._database = database

    def stop(self, timeout_s: float = 10.0) -> None:
        """No process outlives the service."""
        super().stop(timeout_s)
        self._households.close()

    def _look(self) -> None:
        if not (tasks := self._households.tasks):
            return
        with self._database.begin(durable=False) as uow:
            over = uow.tasks.over(tasks)
        for task_id in over:
            _attempt(self._households.end, task_id)
        for task_id in self._households.tasks:
            _attempt(self._households.let_go, task_id)


def _attempt(do: Callable[[str], None], task_id: str) -> None:
    """One task's trouble is not another's."""
    try:
        do(task_id)
    except Exception:
        logger.exception("the processes of task %s could not be ended, or their directory given up", task_id)
