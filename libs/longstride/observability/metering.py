"""The numbers that a message means, counted by the one service that commits it."""

from collections.abc import Callable, Mapping
from typing import Any

from longstride.contracts.envelope import Envelope
from longstride.contracts.flow import Service
from longstride.contracts.model import Contract
from longstride.contracts.v1.events import ActionExecuted, Generated, TaskEnded
from longstride.observability.metrics import Metrics, Phase


def count(metrics: Metrics, consumer: Service, envelope: Envelope, message: Contract) -> None:
    """Count what ``consumer`` has just committed. An event with several consumers counts at one of them."""
    if meter := METERS.get((consumer, envelope.type)):
        meter(metrics, envelope, message)


def _generated(metrics: Metrics, envelope: Envelope, message: Generated) -> None:
    status = "error" if message.error else "format_error" if message.format_error else "ok"
    if status == "format_error":
        metrics.step_ended(status)
    metrics.phase_ended("generate", status, message.usage.wall_ms / 1000)
    metrics.model_call(message.policy, message.usage.input_tokens, message.usage.output_tokens)
    _attempts(metrics, "generate", envelope.attempt, given_up=message.error is not None)


def _action_executed(metrics: Metrics, envelope: Envelope, message: ActionExecuted) -> None:
    if message.observation is not None:
        metrics.step_ended(message.observation.status)
        metrics.phase_ended("execute", message.observation.status, message.usage.wall_ms / 1000)
    if message.needs_review:
        metrics.attempts_lost("execute", "review", envelope.attempt)
    else:
        _attempts(metrics, "execute", envelope.attempt, given_up=message.error is not None)


def _attempts(metrics: Metrics, phase: Phase, answered: int, given_up: bool) -> None:
    """The attempts before the one that answered were lost; when none could, that one was too."""
    metrics.attempts_lost(phase, "given_up" if given_up else "retried", answered if given_up else answered - 1)


def _task_ended(metrics: Metrics, envelope: Envelope, message: TaskEnded) -> None:
    metrics.task_ended(message.outcome, message.reason)


METERS: Mapping[tuple[Service, str], Callable[[Metrics, Envelope, Any], None]] = {
    ("planner", "generated"): _generated,
    ("planner", "action_executed"): _action_executed,
    ("telemetry", "task_ended"): _task_ended,
}
