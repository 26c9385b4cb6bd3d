"""Logs of a process: JSON lines for machines, short lines for people, both with task, step and trace."""

import json
import logging
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal, TextIO

from longstride.observability.log_line import LogLine, log_line
from longstride.observability.redact import Redactor

LogFormat = Literal["auto", "json", "human"]
"""``auto``: human lines on a terminal, JSON lines elsewhere."""
Render = Callable[[LogLine], str]
MakeLine = Callable[[logging.LogRecord], LogLine]
TALKATIVE = ("celery", "kombu", "amqp", "pika")
SILENCED = ("opentelemetry", "urllib3", "requests", "longstride.observability")
"""Loggers whose lines are not sent over OTLP: a failing receiver would feed itself."""
COLOURS = {"DEBUG": "2", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}


def configure(
    level: str = "INFO",
    log_format: LogFormat = "auto",
    stream: TextIO | None = None,
    redact: Redactor | None = None,
    service: str | None = None,
) -> logging.Handler:
    """Send this process's logs to ``stream`` (by default standard error). Called again, it replaces its earlier self.

    ``service`` is named in lines of threads that work for no service in particular. Libraries that tell of every message
    are heard from ``WARNING`` on, unless ``level`` is ``DEBUG``.
    """
    out = stream or sys.stderr
    handler = LineHandler(out, renderer(log_format, out), line_maker(redact or Redactor.of(os.environ), service))
    _replace(handler, LineHandler)
    logging.getLogger().setLevel(level)
    for talkative in TALKATIVE:
        logging.getLogger(talkative).setLevel(
            logging.NOTSET if level == "DEBUG" else max(logging.WARNING, logging.getLevelNamesMapping()[level])
        )
    return handler


def line_maker(redact: Redactor, service: str | None) -> MakeLine:
    """From a log record to a line, in the context of the thread that logs."""
    return lambda record: log_line(record, redact, current_traceparent(), service)


def renderer(log_format: LogFormat, stream: TextIO) -> Render:
    """How lines look on a stream."""
    terminal = stream.isatty()
    if log_format == "json" or (log_format == "auto" and not terminal):
        return render_json
    return lambda line: render_human(line, color=terminal and "NO_COLOR" not in os.environ)


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes redacted lines."""

    def __init__(self, stream: TextIO, render: Render, make: MakeLine) -> None:
        super().__init__(stream)
        self._render = render
        self._make = make

    def format(self, record: logging.LogRecord) -> str:
        return self._render(self._make(record))


class OfferHandler(logging.Handler):
    """Offers lines to a queue, such as the one to an OTLP receiver."""

    def __init__(self, offer: Callable[[LogLine], object], make: MakeLine) -> None:
        super().__init__()
        self._offer = offer
        self._make = make

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(SILENCED):
            return
        try:
            self._offer(self._make(record))
        except Exception:  # noqa: BLE001 - as every handler of logging: report to standard error, do not raise
            self.handleError(record)


def offer_lines(offer: Callable[[LogLine], object], make: MakeLine) -> logging.Handler:
    """Also offer this process's log lines to a queue. Called again, it replaces its earlier self."""
    handler = OfferHandler(offer, make)
    _replace(handler, OfferHandler)
    return handler


def remove(handler: logging.Handler | None) -> None:
    """Undo ``offer_lines``."""
    if handler is not None:
        logging.getLogger().removeHandler(handler)


def render_json(line: LogLine) -> str:
    """One JSON object on one line."""
    trace = {"trace_id": f"{line.span.trace_id:032x}", "span_id": f"{line.span.span_id:016x}"} if line.span else {}
    stack = {"stack": line.stack} if line.stack else {}
    time = _time(line).isoformat(timespec="milliseconds")
    named = {"time": time, "level": line.level, "logger": line.logger, "message": line.message, **trace}
    whole = {**named, **line.fields, **named, **stack}  # the order of the first, the values of the second
    return json.dumps(whole, ensure_ascii=False, default=str).encode("utf-8", "replace").decode()


def render_human(line: LogLine, color: bool = False) -> str:
    """``12:00:01.234 WARNING planner task_01… step 3: message key=value``"""
    fields = dict(line.fields)
    service, task, step = (fields.pop(key, None) for key in ("service", "task_id", "step"))
    about = " ".join(str(part) for part in (service, task, f"step {step}" if step is not None else None) if part)
    rest = "".join(f" {key}={value}" for key, value in fields.items() if key != "tenant" or value != "default")
    level = f"{line.level:<7}"
    if color and line.level in COLOURS:
        level = f"\033[{COLOURS[line.level]}m{level}\033[0m"
    text = f"{_time(line).astimezone():%H:%M:%S}.{line.at_ns // 1_000_000 % 1000:03d} {level} {about or line.logger}: {printable(line.message)}{printable(rest)}"
    return f"{text}\n{printable(line.stack, keep=chr(10))}" if line.stack else text


def printable(text: str, keep: str = "") -> str:
    """Text without control characters, so that no log line can fake another or steer a terminal."""
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def current_traceparent() -> str | None:
    """The current span's, if this process traces at all: logging alone must not import OpenTelemetry."""
    spans = sys.modules.get("longstride.observability.spans")
    return spans.current_traceparent() if spans is not None else None


def _time(line: LogLine) -> datetime:
    return datetime.fromtimestamp(line.at_ns / 1e9, UTC)


def _replace(handler: logging.Handler, kind: type[logging.Handler]) -> None:
    top = logging.getLogger()
    for old in [old for old in top.handlers if type(old) is kind]:
        top.removeHandler(old)
    top.addHandler(handler)
