"""What a service's handlers look like, and the check that they match the flow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from longstride.contracts.envelope import Envelope
from longstride.contracts.flow import Service, rows_for
from longstride.messaging.errors import HandlerTableError
from longstride.storage.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True)
class DeliveryInfo:
    """What came with a message besides its envelope."""

    queue: str
    reply_to: str | None = None
    """The client's queue, where an answer is wanted."""
    correlation_id: str | None = None
    redelivered: bool = False


Handler = Callable[[Envelope, Any, UnitOfWork, DeliveryInfo], object]
"""``handler(envelope, message, uow, delivery)``: ``message`` is the typed body. Everything it does through ``uow``
commits with the inbox row, or not at all; an exception rolls it back and the message is handled again later."""

Middleware = Callable[[Handler], Handler]
"""Wraps a handler: spans, log fields, metrics. The first of a list is the outermost."""


def wrapped(handler: Handler, middleware: list[Middleware]) -> Handler:
    """``handler`` inside its middleware."""
    for layer in reversed(middleware):
        handler = layer(handler)
    return handler


def check_handlers(consumer: Service, handlers: Mapping[str, Any]) -> None:
    """A consumer handles exactly the messages that the flow sends it.

    Raises:
        HandlerTableError: the text names what is missing and what is too much.
    """
    wanted = {row.message for row in rows_for(consumer)}
    missing, extra = sorted(wanted - handlers.keys()), sorted(handlers.keys() - wanted)
    if missing or extra:
        raise HandlerTableError(
            f"the handlers of {consumer} do not match contracts/flow.py: "
            f"no handler for {', '.join(missing) or 'nothing'}; no row for {', '.join(extra) or 'nothing'}"
        )
