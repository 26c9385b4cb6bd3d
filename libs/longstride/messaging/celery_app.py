"""Celery as Longstride uses it: a pool of killable children for bounded jobs, and nothing else of it.

JSON only, no results, no retries, no ETA, no events, no remote control. The message of a job carries one envelope; what
is durable about the job is its lease in PostgreSQL.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from celery import Celery, Task
from celery.app.amqp import AMQP
from celery.worker.consumer.consumer import Consumer
from kombu import entity

from longstride.contracts.topology import job_queues
from longstride.messaging.address import JOBS
from longstride.messaging.declaration import work_queue_arguments
from longstride.messaging.job_slots import JobConsumer
from longstride.messaging.link import HEARTBEAT_S, tls_of, transport_of


@dataclass(frozen=True)
class JobSettings:
    """How one worker runs jobs."""

    broker_url: str
    """``amqp://…``, or ``memory://name`` for a worker inside the embedded stack's process."""
    queues: Sequence[str] = field(default_factory=job_queues)
    """The job queues it takes from."""
    slots: int = 2
    """Jobs at a time."""
    pool: Literal["prefork", "threads"] = "prefork"
    """Children that can be killed, or threads that cannot (embedded)."""
    time_limit_s: float = 3900.0
    """A child that runs longer is killed. It is the last resort: tools and sandboxes have limits of their own, and a
    lease that is lost stops the work long before."""
    max_memory_per_child_mib: int = 1024
    """A child that has grown beyond this is replaced after its job."""
    max_jobs_per_child: int = 1000
    drain_s: float = 15.0
    """After SIGTERM, jobs have so long to finish; then their leases are handed back, for another worker to take at
    once. Below the grace period of whoever sends the signal."""

    def __post_init__(self) -> None:
        if unknown := set(self.queues) - set(job_queues()):
            raise ValueError(f"no job queues: {sorted(unknown)}; the flow has {', '.join(job_queues())}")
        if self.slots < 1:
            raise ValueError(f"slots must be at least 1, not {self.slots}")


class JobTask(Task):  # type: ignore[misc]
    """A job as Celery sees it."""

    Request = "longstride.messaging.job_slots:JobRequest"
    typing = False
    ignore_result = True
    max_retries = 0
    acks_late = True  # JobRequest decides when; Celery would acknowledge at the start and take the next message
    acks_on_failure_or_timeout = True  # the lease brings it back, not the broker
    reject_on_worker_lost = False


class JobAmqp(AMQP):  # type: ignore[misc]
    """Takes one message a slot; see ``job_slots``."""

    def TaskConsumer(self, channel: Any, queues: Any = None, accept: Any = None, **kwargs: Any) -> JobConsumer:
        """The consumer of the job queues."""
        return JobConsumer(
            channel,
            accept=accept or self.app.conf.accept_content,
            queues=queues or list(self.queues.consume_from.values()),
            slots=self.app.conf.worker_concurrency,
            **kwargs,
        )


class JobWorkerConsumer(Consumer):  # type: ignore[misc]
    """Celery's consumer, less what we do not use, and never dropping a message that it cannot read."""

    class Blueprint(Consumer.Blueprint):  # type: ignore[misc]
        """Without delayed delivery's 56 exchanges and queues, gossip and remote control."""

        default_steps = (
            "celery.worker.consumer.connection:Connection",
            "celery.worker.consumer.events:Events",
            "celery.worker.consumer.mingle:Mingle",
            "celery.worker.consumer.tasks:Tasks",
            "celery.worker.consumer.consumer:Evloop",
        )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "initial_prefetch_count": 1})

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """To the dead letters; Celery's own way is to acknowledge it."""
        message.reject_log_error(_Log, self.connection_errors)

    def on_unknown_message(self, body: Any, message: Any) -> None:
        """To the dead letters as well."""
        message.reject_log_error(_Log, self.connection_errors)


class _Log:
    """Celery's ``reject_log_error`` wants a logger for its own failure."""

    @staticmethod
    def critical(text: str, *args: Any, **kwargs: Any) -> None:
        from celery.utils.log import worker_logger

        worker_logger.critical(text, *args, **kwargs)


def make_celery(settings: JobSettings) -> Celery:
    """The Celery application of one job worker. Jobs are registered by ``job_worker``."""
    app = Celery("longstride", amqp=JobAmqp, task_cls=JobTask, set_as_current=False, changes={})
    app.conf.update(
        broker_url=settings.broker_url,
        broker_transport=f"{transport_of(settings.broker_url).__module__}:Transport",
        broker_use_ssl=tls_of(settings.broker_url),
        broker_heartbeat=HEARTBEAT_S,
        broker_connection_retry=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={"confirm_publish": True} if settings.broker_url.startswith("amqp") else {},
        result_backend=None,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_serializer="json",
        accept_content=["json"],
        task_queues=[_queue(name) for name in settings.queues],
        task_create_missing_queues=False,
        task_default_queue=settings.queues[0],
        task_default_queue_type="quorum",
        task_time_limit=settings.time_limit_s if settings.pool == "prefork" else None,
        worker_consumer="longstride.messaging.celery_app:JobWorkerConsumer",
        worker_pool=settings.pool,
        worker_concurrency=settings.slots,
        worker_prefetch_multiplier=1,
        worker_detect_quorum_queues=True,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_max_memory_per_child=settings.max_memory_per_child_mib * 1024,
        worker_max_tasks_per_child=settings.max_jobs_per_child,
        worker_lost_wait=1.0,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_proc_alive_timeout=30.0,
    )
    return app


def job_names(settings: JobSettings) -> list[str]:
    """The jobs that a worker's queues carry."""
    return [JOBS[queue] for queue in settings.queues]


def _queue(name: str) -> Any:
    queue: Any = entity.Queue
    default_exchange: Any = entity.Exchange
    arguments = work_queue_arguments()
    return queue(name, exchange=default_exchange(""), routing_key=name, durable=True, queue_arguments=arguments)
