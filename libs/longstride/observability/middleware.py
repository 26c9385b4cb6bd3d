"""What wraps a service's handlers: a span a message, its context in log lines, and how long it waited."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial, wraps
from typing import Any, Protocol, TypeVar

from longstride.contracts.envelope import Envelope
from longstride.contracts.flow import Service, rows_for
from longstride.observability import names
from longstride.observability.context import bind
from longstride.observability.metering import count
from longstride.observability.propagation import parent_for, stamped, task_of
from longstride.observability.setup import Telemetry
from longstride.observability.spans import span

Result = TypeVar("Result")


class Unit(Protocol):
    """What ``storage`` calls a unit of work: one open transaction."""

    def after_commit(self, callback: Callable[[], None], /) -> None:
        """Call it once the transaction has committed, never otherwise."""


class Held(Protocol):
    """What ``messaging``'s leases hold: the command whose answer follows from ``envelope``."""

    envelope: Envelope


def handler_spans(telemetry: Telemetry, consumer: Service) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Middleware of a ``Dispatcher``. The handler gets the envelope stamped with the span, so that what follows from it links
    here; what the message means in numbers is counted once its transaction has committed."""

    def layer(handler: Callable[..., Result]) -> Callable[..., Result]:
        @wraps(handler)
        def handle(envelope: Envelope, message: Any, uow: Unit, delivery: Any) -> Result:
            uow.after_commit(partial(count, telemetry.metrics, consumer, envelope, message))
            with processing(telemetry, consumer, envelope, message, delivery.queue):
                return handler(stamped(envelope), message, uow, delivery)

        return handle

    return layer


def work_spans(telemetry: Telemetry, consumer: Service) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Middleware of a ``Worker``. The command's envelope is stamped with the span, and with it the answer."""

    def layer(handler: Callable[..., Result]) -> Callable[..., Result]:
        @wraps(handler)
        def work(envelope: Envelope, message: Any, held: Held) -> Result:
            with processing(telemetry, consumer, envelope, message):
                held.envelope = stamped(envelope)
                return handler(held.envelope, message, held)

        return work

    return layer


@contextmanager
def processing(
    telemetry: Telemetry, consumer: Service, envelope: Envelope, message: Any, queue: str | None = None
) -> Iterator[None]:
    """A consumer span around the handling of one message: under the root of its task, linked to its producer."""
    template = _queue(consumer, envelope.type)
    waited_s = max(0.0, (datetime.now(UTC) - envelope.occurred_at).total_seconds())
    telemetry.metrics.waited(template, envelope.type, waited_s)
    fields = {
        names.TASK_ID: task_of(envelope),
        names.STEP: getattr(message, "step", None),
        names.TENANT: envelope.tenant,
    }
    about = {
        names.MESSAGING_OPERATION_NAME: names.PROCESS,
        names.MESSAGING_OPERATION_TYPE: names.PROCESS,
        names.DESTINATION: queue or template,
        names.MESSAGE_ID: envelope.message_id,
        names.MESSAGE_TYPE: envelope.type,
        names.CAUSATION_ID: envelope.causation_id,
        names.ATTEMPT: envelope.attempt if envelope.attempt > 1 else None,
        names.QUEUE_WAIT_MS: waited_s * 1000,
        names.ROLE: consumer if consumer != telemetry.service else None,
    }
    links = [envelope.traceparent]
    with (
        telemetry.activate(),
        bind({**fields, names.MESSAGE_TYPE: envelope.type}),
        span(names.PROCESS, template, parent=parent_for(envelope), links=links, attributes=about, kind="consumer"),
    ):
        yield


def _queue(consumer: Service, message_type: str) -> str:
    """The queue as the flow names it: ``engine.{incarnation}``, not one of the many that it stands for."""
    return next((row.queue for row in rows_for(consumer) if row.message == message_type), message_type)
