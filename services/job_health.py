"""Whether the parent of a job service does its part: it hears the broker, and has the children to carry jobs out."""

import time
from typing import Any

import psutil

from longstride.messaging.job_worker import JobWorker
from longstride.observability.health import Health

PATIENCE_S = 10.0
"""How long a child may be missing: one that has died, or has grown too large, is replaced in less."""


class JobHealth:
    """Two health checks; both look at what Celery's worker keeps anyway, and ask nobody."""

    def __init__(self, worker: JobWorker, slots: int, *, patience_s: float = PATIENCE_S) -> None:
        """
        Args:
            worker: of this process, started or not.
            slots: children that it is to have.
            patience_s: see above.
        """
        self._worker = worker
        self._slots = slots
        self._patience_s = patience_s
        self._short_since: float | None = None

    def register(self, health: Health) -> None:
        """Have the health endpoint ask."""
        health.register("broker", self.broker)
        health.register("children", self.children)

    def broker(self) -> str | None:
        """Whether jobs can arrive."""
        consumer: Any = getattr(self._controller, "consumer", None)
        connection = getattr(consumer, "connection", None)
        if connection is None or not connection.connected:
            return "not connected to the broker: jobs wait in their queue"
        return None if consumer.task_consumer else "connected to the broker, and not subscribed to the job queues yet"

    def children(self) -> str | None:
        """Whether jobs can be carried out."""
        alive = sum(map(_alive, self._pids()))
        if alive >= self._slots:
            self._short_since = None
            return None
        self._short_since = self._short_since or time.monotonic()
        missing_s = time.monotonic() - self._short_since
        if alive and missing_s < self._patience_s:
            return None
        return f"{alive} of {self._slots} children are alive, for {missing_s:.0f} s"

    @property
    def _controller(self) -> Any:
        """Celery's worker; ``None`` before it is made."""
        return getattr(self._worker.app, "job_worker", None)

    def _pids(self) -> list[int]:
        pool = getattr(self._controller, "pool", None)
        return list(pool.info["processes"]) if pool is not None else []


def _alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
