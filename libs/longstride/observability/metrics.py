"""What the services count. Each number is recorded once, by the process that commits what it counts, so never in a forked child."""

from collections.abc import Callable, Iterable, Mapping

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from longstride.contracts.topology import durable_bindings, job_queues
from longstride.observability import names

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576)
"""Bounds that the conventions advise for ``gen_ai.client.token.usage``, up to a million."""
NOT_THE_AGENT = ("infrastructure", "policy_unavailable", "check_cannot_run", "input_unusable")
"""Reasons of failures that somebody should look at."""
Dropped = Callable[[], Mapping[str, int]]


class Metrics:
    """The instruments. No task or session id is ever a label: their number has no bound."""

    def __init__(self, meter: Meter, dropped: Dropped = dict) -> None:
        """``dropped`` says how many items each telemetry sink has dropped so far."""
        self._tasks = meter.create_counter(names.TASKS_ENDED, "{task}", "Tasks that reached their terminal state")
        self._steps = meter.create_counter(names.STEPS, "{step}", "Steps that ended")
        self._step_seconds = meter.create_histogram(
            names.STEP_DURATION,
            "s",
            "From the request to the policy to the observation",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._tokens = meter.create_histogram(
            names.TOKEN_USAGE, "{token}", "Tokens of model calls", explicit_bucket_boundaries_advisory=TOKENS
        )
        self._wait = meter.create_histogram(
            names.QUEUE_WAIT,
            "s",
            "From a message's making to the start of its handling",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._backlog = meter.create_gauge(
            names.OUTBOX_BACKLOG, "{message}", "Messages that wait for the broker's confirm"
        )
        self._reaped = meter.create_counter(names.ATTEMPTS_REAPED, "{attempt}", "Attempts whose lease ran out")
        self._dead = meter.create_counter(names.DEAD_LETTERS, "{message}", "Messages parked as dead letters")
        meter.create_observable_counter(
            names.TELEMETRY_DROPPED,
            [_observing(dropped)],
            "{item}",
            "Spans and log lines dropped because a receiver failed",
        )

        self._begin_at_zero()

    def _begin_at_zero(self) -> None:
        """Prometheus sees no increase in a series that is born with its first event: those that alerts watch begin before."""
        for reason in NOT_THE_AGENT:
            self._tasks.add(0, {names.OUTCOME: "failed", names.REASON: reason})
        for phase in ("generate", "execute"):
            for outcome in ("retried", "poison", "review"):
                self._reaped.add(0, {names.PHASE: phase, names.OUTCOME: outcome})
        for queue in {queue for queue, _ in durable_bindings()} | set(job_queues()):
            self._dead.add(0, {names.DESTINATION: _short(queue)})

    def task_ended(self, outcome: str, reason: str) -> None:
        """A task reached its terminal state."""
        self._tasks.add(1, {names.OUTCOME: outcome, names.REASON: reason})

    def step_ended(self, status: str, tool: str | None, seconds: float) -> None:
        """A step ended with an observation or a format error."""
        labels: dict[str, str] = {names.STATUS: status, names.TOOL_NAME: tool or "none"}
        self._steps.add(1, labels)
        self._step_seconds.record(seconds, labels)

    def model_call(self, model: str, input_tokens: int, output_tokens: int) -> None:
        """A model call ended."""
        labels: dict[str, str] = {names.REQUEST_MODEL: model, names.OPERATION: names.CHAT}
        self._tokens.record(input_tokens, {**labels, names.TOKEN_TYPE: "input"})
        self._tokens.record(output_tokens, {**labels, names.TOKEN_TYPE: "output"})

    def waited(self, queue: str, message: str, seconds: float) -> None:
        """A message began to be handled so long after it was made."""
        self._wait.record(max(seconds, 0.0), {names.DESTINATION: queue, names.MESSAGE_TYPE: message})

    def outbox_backlog(self, messages: int) -> None:
        """So many messages wait in the outbox."""
        self._backlog.set(messages)

    def attempt_reaped(self, phase: str, outcome: str) -> None:
        """A lease ran out: ``retried``, ``poison`` or ``review``."""
        self._reaped.add(1, {names.PHASE: phase, names.OUTCOME: outcome})

    def dead_letter(self, queue: str) -> None:
        """A message was parked."""
        self._dead.add(1, {names.DESTINATION: _short(queue)})


def _short(queue: str) -> str:
    return queue.removeprefix("longstride.")


def _observing(dropped: Dropped) -> Callable[[CallbackOptions], Iterable[Observation]]:
    return lambda options: [Observation(count, {names.SINK: sink}) for sink, count in dropped().items()]
