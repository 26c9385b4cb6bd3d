"""A job service as a process: Celery's parent, and children that carry jobs out and can be killed."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from longstride.contracts.flow import Service, rows_for
from longstride.contracts.topology import queue_name
from longstride.messaging.celery_app import JobSettings
from longstride.messaging.errors import MessagingError
from longstride.messaging.job_runner import JobRunner, PlainJob
from longstride.messaging.job_worker import JobWorker
from longstride.messaging.part import Part
from longstride.messaging.work import Worker
from longstride.observability.settings import TelemetrySettings
from longstride.observability.wrong_settings import WRONG, told
from longstride.storage.database import Database
from longstride.storage.errors import StorageError
from longstride.tools.mcp.catalogue import CatalogueUnusable
from longstride.tools.registry import Registry
from services.connections import Connections
from services.host import Host, check, open_host, refuse
from services.job_health import JobHealth

logger = logging.getLogger(__name__)

CHILD_POOL = 4
"""Database connections of a child: a job, and housekeeping."""


@dataclass(frozen=True)
class Jobs:
    """What a process can carry out."""

    worker: Worker
    """Leased commands."""
    plain: Mapping[str, PlainJob]
    """Idempotent jobs."""
    close: Callable[[], object] = lambda: None
    """Undo what making this did."""
    parts: Sequence[Part] = ()
    """What runs beside the jobs."""


class Child(JobRunner):
    """A forked child: connections, leases and housekeeping of its own."""

    def __init__(self, host: Host, jobs: Jobs) -> None:
        super().__init__(host.backbone, jobs.worker, jobs.plain)
        self._host = host
        self._jobs = jobs
        self._housekeeping: Sequence[Part] = (*host.housekeeping(), *jobs.parts)

    def start(self) -> None:
        """Start everything."""
        super().start()
        for part in self._housekeeping:
            part.start()

    def run(self, job: str, wire: str) -> None:
        """Carry one job out. Its spans are sent before the child may be killed or replaced."""
        super().run(job, wire)
        self._host.telemetry.flush()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End everything."""
        for part in reversed(self._housekeeping):
            part.stop(timeout_s)
        super().stop(timeout_s)
        self._jobs.close()
        self._host.telemetry.shutdown()


def run_jobs(
    service: Service, slots: int, make: Callable[[Host], Jobs], prepare: Callable[[Host], object] = lambda _host: None
) -> int:
    """A job service until SIGTERM; returns the exit code.

    Args:
        service: as in the flow; its queues are the ones that are taken from.
        slots: children.
        make: called in each child.
        prepare: called once in the parent, which then lets go of every connection before it forks.
    """
    try:
        connections = Connections()
        host = open_host(service, connections)
        worker = _worker(service, slots, connections, make, host.tools)
        JobHealth(worker, slots).register(host.telemetry.health)
        check(host)
        prepare(host)
        host.backbone.close()
        host.started()
        logger.info("%s %s started", service, host.backbone.incarnation)
    except WRONG as error:
        return refuse(f"settings: {told(error)}")
    except (StorageError, MessagingError, CatalogueUnusable) as error:
        return refuse(str(error))
    return worker.run()


def _worker(
    service: Service, slots: int, connections: Connections, make: Callable[[Host], Jobs], tools: Registry
) -> JobWorker:
    queues = [queue_name(row) for row in rows_for(service)]
    settings = JobSettings(connections.amqp_url.get_secret_value(), queues=queues, slots=slots)
    return JobWorker(settings, lambda: _child(service, connections, make, tools), _forfeit(connections))


def _child(service: str, connections: Connections, make: Callable[[Host], Jobs], tools: Registry) -> Child:
    settings = TelemetrySettings().for_child()
    host = open_host(service, connections, pool_size=CHILD_POOL, settings=settings, tools=tools)
    return Child(host, make(host))


def _forfeit(connections: Connections) -> Callable[[str], None]:
    """A child died at its job: its lease need not run out before the next attempt."""

    def forfeit(message_id: str) -> None:
        database = Database(
            connections.database_url.get_secret_value(), pool_size=1, application_name="longstride job parent"
        )
        try:
            with database.begin() as uow:
                uow.attempts.forfeit_command(message_id)
        except StorageError as error:
            logger.warning("the lease of %s runs out by itself: %s", message_id, error)
        finally:
            database.close()

    return forfeit
