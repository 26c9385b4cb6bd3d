"""The ordered, token-exact record of an episode, assembled from what was committed of its task.

One task makes one trajectory, so the task's id names both. Texts and ids are not copied in: the trajectory refers to
the token records and spans that hold them.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from itertools import pairwise
from typing import Annotated, Literal, NamedTuple, Protocol

from pydantic import Field

from longstride.contracts.artifact import ArtifactRef, Sha256
from longstride.contracts.model import Contract
from longstride.contracts.v1.action import Action, CheckResult, Observation, ObservationStatus, ToolName, Usage
from longstride.contracts.v1.commands import SubmitTask
from longstride.contracts.v1.events import EndReason, Outcome, TaskEnded
from longstride.learning.reward import Reward, reward_of


class TaskIdentity(NamedTuple):
    """Whose episode it is."""

    task_id: str
    session_id: str
    tenant: str = "default"


class Answer(Protocol):
    """What the policy answered: ``contracts.v1.events.Generated`` or the planner's ``ActionProposed``."""

    @property
    def step(self) -> int: ...
    @property
    def action(self) -> Action | None: ...
    @property
    def tokens(self) -> ArtifactRef | None: ...
    @property
    def usage(self) -> Usage: ...
    @property
    def policy(self) -> str: ...
    @property
    def policy_version(self) -> int | None: ...


class Result(Protocol):
    """What came of it: ``contracts.v1.events.ActionExecuted`` or the planner's ``ActionObserved``."""

    @property
    def step(self) -> int: ...
    @property
    def observation(self) -> Observation | None: ...
    @property
    def usage(self) -> Usage: ...


class Exchange(NamedTuple):
    """One committed step."""

    answer: Answer
    result: Result | None = None
    """``None`` when the answer was no action, or the episode ended before there was a result."""
    traceparent: str | None = None
    """W3C trace context of the step."""


class TrajectoryStep(Contract):
    """One plan → execute → reflect turn."""

    step: Annotated[int, Field(ge=1)]
    tool: ToolName | None = None
    """``None``: the policy's answer was not one action."""
    observation: ObservationStatus | None = None
    """``None``: no tool ran."""
    tokens: ArtifactRef | None = None
    """The ``TokenRecord`` of the model call, when the policy gave one."""
    policy: str
    policy_version: int | None = None
    usage: Usage = Usage()
    """Model call and tool call together."""
    trace_id: str | None = None
    """32 hex digits."""
    span_id: str | None = None
    """16 hex digits."""


class Trajectory(Contract):
    """A finished episode. Stored as JSON; ``format_version`` grows with every change that is not additive."""

    format_version: Literal[1] = 1
    task_id: str
    session_id: str
    tenant: str = "default"
    group_id: str | None = None
    """Sibling rollouts that share a baseline; ``None``: it has no siblings."""
    instruction_sha256: Sha256
    """Of the instruction's UTF-8 bytes: tells episodes of one instruction apart from others without holding its text."""
    policy: str
    """Who answered the first model call; when nobody did, who was asked (``default``: the deployment's choice)."""
    policy_versions: tuple[int, ...] = ()
    """The versions that acted, ascending; more than one when the weights changed on the way."""
    outcome: Outcome
    reason: EndReason
    steps: tuple[TrajectoryStep, ...]
    checks: tuple[CheckResult, ...] = ()
    """What the checks said of the last submission."""
    rewards: tuple[Reward, ...]
    """As known when the episode ended: the first version. Later ones are rows of their own."""
    usage: Usage = Usage()
    trace_id: str | None = None

    @property
    def policy_version(self) -> int | None:
        """The oldest version that acted, by which staleness is judged; ``None`` without token records."""
        return self.policy_versions[0] if self.policy_versions else None

    @property
    def token_records(self) -> tuple[ArtifactRef, ...]:
        """References to the episode's token records, in order."""
        return tuple(step.tokens for step in self.steps if step.tokens is not None)

    @property
    def complete(self) -> bool:
        """Each model call has its token record, so the episode can be trained on."""
        return bool(self.steps) and all(step.tokens is not None for step in self.steps)


def pair(
    answers: Iterable[Answer], results: Iterable[Result], traceparents: Mapping[int, str] | None = None
) -> list[Exchange]:
    """Join answers with the results of the same step, in the order of the answers.

    Raises:
        ValueError: a step has two results, or a result no answer.
    """
    waiting: dict[int, Result] = {}
    for result in results:
        if result.step in waiting:
            raise ValueError(f"step {result.step} has two results; a step's result commits once")
        waiting[result.step] = result
    spans = traceparents or {}
    exchanges = [Exchange(answer, waiting.pop(answer.step, None), spans.get(answer.step)) for answer in answers]
    if waiting:
        raise ValueError(f"these steps have a result and no answer: {sorted(waiting)}")
    return exchanges


def assemble(identity: TaskIdentity, task: SubmitTask, exchanges: Iterable[Exchange], ended: TaskEnded) -> Trajectory:
    """Fold a task's committed steps into its trajectory.

    Raises:
        ValueError: the steps are out of order, or an action's result belongs to another step.
    """
    steps = tuple(_step(exchange) for exchange in exchanges)
    _require_order(steps)
    return Trajectory(
        **identity._asdict(),
        group_id=task.group_id,
        instruction_sha256=sha256(task.instruction.encode()).hexdigest(),
        policy=steps[0].policy if steps else task.policy or "default",
        policy_versions=tuple(sorted({s.policy_version for s in steps if s.policy_version is not None and s.tokens})),
        outcome=ended.outcome,
        reason=ended.reason,
        steps=steps,
        checks=ended.checks,
        rewards=(reward_of(task.checks, ended.checks, ended.reason),),
        usage=ended.usage,
        trace_id=ended.trace_id,
    )


def _step(exchange: Exchange) -> TrajectoryStep:
    answer, result = exchange.answer, exchange.result
    if result is not None and result.step != answer.step:
        raise ValueError(f"the result of step {result.step} was paired with the action of step {answer.step}")
    trace_id, span_id = _trace_and_span(exchange.traceparent)
    return TrajectoryStep(
        step=answer.step,
        tool=answer.action.tool if answer.action else None,
        observation=result.observation.status if result and result.observation else None,
        tokens=answer.tokens,
        policy=answer.policy,
        policy_version=answer.policy_version,
        usage=answer.usage + result.usage if result else answer.usage,
        trace_id=trace_id,
        span_id=span_id,
    )


def _trace_and_span(traceparent: str | None) -> tuple[str | None, str | None]:
    if traceparent is None:
        return None, None
    _, trace_id, span_id, _ = traceparent.split("-")
    return trace_id, span_id


def _require_order(steps: tuple[TrajectoryStep, ...]) -> None:
    for before, after in pairwise(steps):
        if after.step <= before.step:
            raise ValueError(f"step {after.step} follows step {before.step}; a trajectory's steps ascend")
