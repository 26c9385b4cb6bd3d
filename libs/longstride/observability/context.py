"""What the current thread is working on: fields that every span and log record made meanwhile carries."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

from longstride.observability import names
from longstride.observability.names import Attribute

Value = str | int | float | bool

_bound: ContextVar[Mapping[Attribute, Value]] = ContextVar("longstride_bound", default=MappingProxyType({}))

LOG_FIELDS = {
    names.SERVICE_NAME: "service",
    names.TASK_ID: "task_id",
    names.STEP: "step",
    names.TENANT: "tenant",
    names.MESSAGE_TYPE: "message",
}
"""Attributes under their short names in log lines."""


@contextmanager
def bind(fields: Mapping[Attribute, Value | None]) -> Iterator[None]:
    """Add fields for the time of a ``with`` block; ``None`` leaves a field as it is. A thread started inside does not inherit them."""
    token = _bound.set({**_bound.get(), **{key: value for key, value in fields.items() if value is not None}})
    try:
        yield
    finally:
        _bound.reset(token)


def bound() -> Mapping[Attribute, Value]:
    """The fields bound right now."""
    return _bound.get()


def span_fields() -> dict[str, Value]:
    """The bound fields that a span carries; a message's type belongs to its own span alone."""
    return {key: value for key, value in _bound.get().items() if key in _ON_SPANS}


def log_fields() -> dict[str, Value]:
    """The bound fields as log records name them."""
    return {LOG_FIELDS.get(key, key): value for key, value in _bound.get().items()}


_ON_SPANS = frozenset({names.TASK_ID, names.STEP, names.TENANT})
