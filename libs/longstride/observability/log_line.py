"""A log record, redacted, with what the thread was working on."""

import logging
import traceback
from dataclasses import dataclass, field
from typing import Any

from longstride.observability import names
from longstride.observability.context import log_fields
from longstride.observability.redact import Redactor
from longstride.observability.traceparent import SpanRef, parse

MAX_MESSAGE = 16_384
"""Characters kept of a message and of a stack trace."""
_ORDINARY = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


@dataclass(frozen=True, slots=True)
class LogLine:
    """What every format of a log line is made from."""

    at_ns: int
    """Unix nanoseconds."""
    level: str
    logger: str
    message: str
    span: SpanRef | None = None
    """The span it was logged in."""
    fields: dict[str, Any] = field(default_factory=dict)
    """service, task_id, step, tenant …, and what the caller gave as ``extra``."""
    stack: str | None = None

    @property
    def attributes(self) -> dict[str, Any]:
        """All but the message, flat, for OTLP."""
        stack: dict[str, str] = {names.EXCEPTION_STACKTRACE: self.stack} if self.stack else {}
        return {"logger": self.logger, **{key: _flat(value) for key, value in self.fields.items()}, **stack}


def log_line(
    record: logging.LogRecord, redact: Redactor, traceparent: str | None, service: str | None = None
) -> LogLine:
    """A log record as a line; ``traceparent`` is the current span's, ``service`` that of threads which work for none in particular."""
    extra = {key: value for key, value in record.__dict__.items() if key not in _ORDINARY}
    return LogLine(
        at_ns=int(record.created * 1e9),
        level=record.levelname,
        logger=record.name,
        message=redact(record.getMessage()[:MAX_MESSAGE]),
        span=parse(traceparent),
        fields={key: redact.value(key, value) for key, value in {**_given(service), **log_fields(), **extra}.items()},
        stack=redact(_stack(record)[-MAX_MESSAGE:]) or None,
    )


def _given(service: str | None) -> dict[str, Any]:
    return {"service": service} if service else {}


def _stack(record: logging.LogRecord) -> str:
    raised = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else record.exc_text or ""
    return (raised + (record.stack_info or "")).rstrip()


def _flat(value: Any) -> Any:
    return value if isinstance(value, str | bool | int | float) else str(value)
