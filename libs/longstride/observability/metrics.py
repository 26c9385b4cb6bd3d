"""What the services count. Each number is recorded once, by the process that commits or handles what it counts.

The children of a job service have instruments of their own, and push them under a ``service.instance.id`` of their own.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation

from longstride.observability import names

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576)
"""Bounds that the conventions advise for ``gen_ai.client.token.usage``, up to a million."""
NOT_THE_AGENT = ("infrastructure", "policy_unavailable", "check_cannot_run", "input_unusable")
"""Reasons of failures that somebody should look at."""
Phase = Literal["generate", "execute"]
Fate = Literal["retried", "given_up", "review"]
"""What became of attempts that came to nothing: a later one answered; no other was made; a person decides."""
PHASES: tuple[Phase, ...] = ("generate", "execute")
FATES: tuple[Fate, ...] = ("retried", "given_up", "review")
Load = Literal["served", "refused"]
LOADS: tuple[Load, ...] = ("served", "refused")
Dropped = Callable[[], Mapping[str, int]]


class Metrics:
    """The instruments. No task or session id is ever a label: their number has no bound."""

    def __init__(self, meter: Meter, dropped: Dropped = dict) -> None:
        """``dropped`` says how many items each telemetry sink has dropped so far."""
        self._tasks = meter.create_counter(names.TASKS_ENDED, "{task}", "Tasks that reached their terminal state")
        self._steps = meter.create_counter(names.STEPS, "{step}", "Steps that ended")
        self._duration = _seconds(
            meter, names.STEP_DURATION, "Time of a step's model call or action, as its worker took it"
        )
        self._tokens = meter.create_histogram(
            names.TOKEN_USAGE, "{token}", "Tokens of model calls", explicit_bucket_boundaries_advisory=TOKENS
        )
        self._wait = _seconds(meter, names.QUEUE_WAIT, "From a message's making to the start of its handling")
        self._backlog = meter.create_gauge(
            names.OUTBOX_BACKLOG, "{message}", "Messages that wait for the broker's confirm"
        )
        self._age = meter.create_gauge(names.OUTBOX_AGE, "s", "How long the oldest of them has waited")
        self._dead = meter.create_gauge(names.DEAD_LETTERS, "{message}", "Dead letters that were not replayed")
        self._lost = meter.create_counter(
            names.ATTEMPTS_LOST,
            "{attempt}",
            "Attempts of which no result came: the worker died or hung, or the call failed for good",
        )
        self._loads = meter.create_counter(
            names.POLICY_LOADS, "{version}", "Published versions that an engine was to serve, by what came of it"
        )
        self._pool = meter.create_gauge(
            names.SANDBOX_POOL, "{sandbox}", "Sandboxes of a tool-executor's process, by state"
        )
        self._acquired = _seconds(
            meter, names.SANDBOX_WAIT, "Time a call waited for its sandbox, by where that came from"
        )
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
        for phase in PHASES:
            for fate in FATES:
                self.attempts_lost(phase, fate, 0)
        for outcome in LOADS:
            self.policy_loaded(outcome, 0)

    def task_ended(self, outcome: str, reason: str) -> None:
        """A task reached its terminal state."""
        self._tasks.add(1, {names.OUTCOME: outcome, names.REASON: reason})

    def step_ended(self, status: str) -> None:
        """A step ended with an observation's status, or with ``format_error``."""
        self._steps.add(1, {names.STATUS: status})

    def phase_ended(self, phase: Phase, status: str, seconds: float) -> None:
        """A model call or an action took so long."""
        self._duration.record(seconds, {names.PHASE: phase, names.STATUS: status})

    def model_call(self, policy: str, input_tokens: int, output_tokens: int) -> None:
        """A model call used so many tokens. The label is the kind of policy: addresses and paths have no bound, and secrets."""
        labels: dict[str, str] = {names.REQUEST_MODEL: re.split("[:@]", policy)[0], names.OPERATION: names.CHAT}
        self._tokens.record(input_tokens, {**labels, names.TOKEN_TYPE: "input"})
        self._tokens.record(output_tokens, {**labels, names.TOKEN_TYPE: "output"})

    def waited(self, queue: str, message: str, seconds: float) -> None:
        """A message began to be handled so long after it was made."""
        self._wait.record(max(seconds, 0.0), {names.DESTINATION: queue, names.MESSAGE_TYPE: message})

    def attempts_lost(self, phase: Phase, fate: Fate, attempts: int = 1) -> None:
        """So many attempts at one command came to nothing."""
        self._lost.add(attempts, {names.PHASE: phase, names.OUTCOME: fate})

    def policy_loaded(self, outcome: Load, versions: int = 1) -> None:
        """So many published versions are served by this engine, or were refused by it."""
        self._loads.add(versions, {names.OUTCOME: outcome})

    def outbox(self, messages: int, oldest_s: float) -> None:
        """So many messages wait in the outbox, the oldest for so long."""
        self._backlog.set(messages)
        self._age.set(oldest_s)

    def dead_letters(self, waiting: int) -> None:
        """So many dead letters were not replayed."""
        self._dead.set(waiting)

    def sandboxes(self, *, ready: int, used: int, target: int) -> None:
        """So many sandboxes wait, so many work, and so many should wait."""
        for state, number in (("ready", ready), ("used", used), ("target", target)):
            self._pool.set(number, {names.STATE: state})

    def sandbox_acquired(self, source: str, seconds: float) -> None:
        """A call got its sandbox after so long, from a source."""
        self._acquired.record(seconds, {names.SOURCE: source})


def _seconds(meter: Meter, name: str, description: str) -> Histogram:
    return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=SECONDS)


def _observing(dropped: Dropped) -> Callable[[CallbackOptions], Iterable[Observation]]:
    return lambda options: [Observation(count, {names.SINK: sink}) for sink, count in dropped().items()]
