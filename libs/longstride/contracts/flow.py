"""The flow, as a table. Bindings, the README's table, the handlers' check and the trace-edge test derive from it."""

from typing import Literal, NamedTuple

Service = Literal["client", "planner", "model-worker", "trainer", "tool-executor", "telemetry", "timers"]
Carrier = Literal["kombu", "celery"]


class Row(NamedTuple):
    """One message from its producers to one consumer's queue."""

    message: str
    producers: tuple[Service, ...]
    queue: str
    """The queue's name; ``reply`` is the client's own."""
    consumer: Service
    carrier: Carrier = "kombu"
    """``celery`` for bounded jobs: tool calls, policy updates and sweeps."""


FLOW: tuple[Row, ...] = (
    Row("submit_task", ("client", "planner"), "planner", "planner"),
    Row("task_accepted", ("planner",), "reply", "client"),
    Row("task_rejected", ("planner",), "reply", "client"),
    Row("generate", ("planner",), "generate.{track}", "model-worker"),
    Row("generated", ("model-worker",), "planner", "planner"),
    Row("execute_action", ("planner",), "execute", "tool-executor", "celery"),
    Row("action_executed", ("tool-executor",), "planner", "planner"),
    Row("task_ended", ("planner",), "planner", "planner"),
    Row("task_ended", ("planner",), "telemetry", "telemetry"),
    Row("task_ended", ("planner",), "reply", "client"),
    Row("update_policy", ("telemetry", "client"), "update", "trainer", "celery"),
    Row("policy_published", ("trainer",), "engine.{incarnation}", "model-worker"),
    Row("policy_published", ("trainer",), "telemetry", "telemetry"),
    Row("cancel_task", ("client", "planner"), "planner", "planner"),
    Row("pause_task", ("client",), "planner", "planner"),
    Row("resume_task", ("client",), "planner", "planner"),
    Row("message_task", ("client",), "planner", "planner"),
    Row("approve_action", ("client",), "planner", "planner"),
    Row("expire_task", ("timers",), "planner", "planner"),
    Row("record_feedback", ("client",), "telemetry", "telemetry"),
    Row("sweep", ("timers",), "sweep", "trainer", "celery"),
)


def rows_for(consumer: Service) -> tuple[Row, ...]:
    """The rows that a consumer must handle."""
    return tuple(row for row in FLOW if row.consumer == consumer)
