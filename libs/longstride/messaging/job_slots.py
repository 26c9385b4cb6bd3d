"""One message a slot: how a Celery worker takes no more than it can run, and holds no delivery for long."""

from typing import Any

from celery.worker.request import Request
from celery.worker.state import active_requests
from kombu.entity import Queue
from kombu.messaging import Consumer

HOLD_S = 5.0
"""A delivery that runs longer is acknowledged before its end: the lease in PostgreSQL vouches for it by then."""


class JobConsumer(Consumer):
    """Consumes each queue through one subscription a slot, each with a prefetch of one.

    Celery's own way, one subscription with a prefetch of all slots and an early acknowledgement, takes a second
    message for each slot and lets it wait behind a long job. Here a slot's delivery stays unacknowledged while its job
    runs, so the broker sends nothing more for it; when that takes longer than ``HOLD_S``, the subscription is ended
    *before* the acknowledgement, and taken up again when the slot is free.
    """

    def __init__(self, *args: Any, slots: int, **kwargs: Any) -> None:
        self._slots = slots
        self._queue_of: dict[str, Queue] = {}
        super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]

    def consume(self, no_ack: bool | None = None) -> None:
        """Subscribe every slot, but those whose job outlived an earlier connection."""
        self.qos(prefetch_count=1)  # type: ignore[no-untyped-call]
        occupied = {request.slot: request for request in active_requests if isinstance(request, JobRequest)}
        for queue in self.queues or ():
            for number in range(1, self._slots + 1):
                slot = f"{queue.name} slot {number}"
                self._queue_of[slot] = queue
                if slot in occupied:
                    occupied[slot].keep_paused()
                else:
                    self.resume(slot)

    def cancel(self) -> None:
        """End every subscription."""
        for slot in self._queue_of:
            self.pause(slot)
        self._queue_of.clear()

    close = cancel

    def pause(self, slot: str) -> None:
        """Take no more through one subscription."""
        channel: Any = self.channel
        channel.basic_cancel(slot, nowait=True)

    def resume(self, slot: str) -> None:
        """Take messages through it again; nothing happens once the consumer was cancelled."""
        if (queue := self._queue_of.get(slot)) is not None:
            consume: Any = queue.consume
            consume(slot, self._receive_callback, no_ack=False, nowait=True)


class JobRequest(Request):  # type: ignore[misc]
    """A job in the worker: acknowledged at its end, or after ``HOLD_S``, whichever comes first."""

    _paused = False

    @property
    def slot(self) -> str:
        """The subscription that it came through: its consumer tag."""
        return str(self.message.delivery_info["consumer_tag"])

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        """The job runs from now on."""
        super().on_accepted(pid, time_accepted)
        self.app.job_worker.timer.call_after(HOLD_S, self._acknowledge_early)

    def acknowledge(self) -> None:
        """Celery calls this at the end of the job, however it ended."""
        super().acknowledge()
        if self._paused:
            self._paused = False
            self._consumer.resume(self.slot)

    def keep_paused(self) -> None:
        """The connection it came over is gone; its slot is taken up again when it ends."""
        self._paused = True

    def _acknowledge_early(self) -> None:
        if not self.acknowledged:
            self._paused = True
            self._consumer.pause(self.slot)
            super().acknowledge()

    @property
    def _consumer(self) -> JobConsumer:
        consumer: JobConsumer = self.app.job_worker.consumer.task_consumer
        return consumer
