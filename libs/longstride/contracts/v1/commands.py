"""Commands: imperative, addressed to one consumer."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.model import Contract
from longstride.contracts.most import Most
from longstride.contracts.v1.action import Action, ToolName
from longstride.contracts.v1.check import Check
from longstride.contracts.v1.context import ContextHead
from longstride.contracts.v1.egress import Egress
from longstride.contracts.v1.environment import Environment
from longstride.contracts.v1.input_file import InputFile
from longstride.contracts.v1.limits import Allowance, Isolation, Limits, SandboxLimits
from longstride.contracts.v1.tool_rules import Redaction

Track = Literal["fast", "deep"]
"""Which deployment serves the model calls."""

ApprovalRule = Literal["never", "unsafe", "always"]
"""Which actions wait for a person: none, those of ``unsafe`` tools, all."""

PolicyName = Annotated[str, StringConstraints(min_length=1, max_length=256)]
"""``builtin``, ``scripted``, ``local:PATH`` or ``remote:URL``; ``builtin@7`` pins a version."""

AgentName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
"""An agent definition of a tenant: a name under which it has set rules on tools."""

Person = Annotated[str, StringConstraints(max_length=255)]
"""Who says so, by the name that the sender gives; the audit keeps it."""
UNKNOWN = "unknown"

SecretName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$")]
"""Of a value that only the tool-executor's side knows."""


MOST_INSTRUCTION = 32_768
"""Characters of what a task is told to do."""


class Sampling(Contract):
    """How a policy samples."""

    temperature: Annotated[float, Field(ge=0, le=4)] = 0.0
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_tokens: Annotated[int, Field(gt=0, le=65_536)] = 1024
    seed: Annotated[int, Most((1 << 63) - 1, least=-(1 << 63))] | None = None


class SubmitTask(Contract):
    """Accept a task. Published by a person or program; answered with ``task_accepted`` or ``task_rejected``, then ``task_ended``."""

    instruction: Annotated[str, StringConstraints(min_length=1, max_length=MOST_INSTRUCTION, strip_whitespace=True)]
    """What to do, in words."""
    inputs: tuple[InputFile, ...] = ()
    """Files laid into the workspace."""
    checks: Annotated[tuple[Check, ...], Most(100)] = ()
    """What must pass before the task is done; they are also its reward."""
    limits: Limits = Limits()
    sandbox: SandboxLimits = SandboxLimits()
    isolation: Isolation = "process"
    environment: Environment = Environment()
    """What its sandboxes show beside the workspace."""
    egress: Egress | None = None
    """What the agent's programs may reach over the network; ``None``: nothing."""
    track: Track = "fast"
    policy: PolicyName | None = None
    """``None``: the deployment's default for the track."""
    sampling: Sampling = Sampling()
    tools: tuple[ToolName, ...] | None = None
    """The tools the agent may call; ``None`` is all."""
    agent: AgentName = "default"
    """Whose rules on tools hold; one other than ``default`` must have some."""
    approvals: ApprovalRule = "never"
    secrets: Annotated[tuple[SecretName, ...], Field(max_length=32)] = ()
    """Secrets of the tenant that the task's tool calls may read, each a file under ``/run/longstride/secrets``."""
    priority: Annotated[int, Field(ge=0, le=9)] = 5
    """9 goes first, within its tenant."""
    idempotency_key: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None
    """A second submission under the same key and tenant is answered with the first task."""
    concurrency_key: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None
    """Tasks of one tenant and key run one at a time."""
    group_id: Annotated[str, StringConstraints(min_length=1, max_length=128)] | None = None
    """Sibling rollouts that share a baseline."""
    parent_task_id: Annotated[str, Most(128)] | None = None
    """The task that delegated this one."""
    workspace: ArtifactRef | None = None
    """Start from this workspace; ``inputs`` are laid over it. Set by the planner for sub-tasks and forks."""
    fork_of: tuple[Annotated[str, Most(128)], Annotated[int, Most(100_000, least=0)]] | None = None
    """(task id, step): start from that task's state after that step."""


class Generate(Contract):
    """Ask the policy for the next action. One answer: ``generated``."""

    step: Annotated[int, Field(ge=1)]
    policy: PolicyName | None = None
    track: Track
    context: ContextHead
    tools: tuple[ToolName, ...]
    """Names in the tool registry; a policy that needs schemas looks them up there."""
    sampling: Sampling
    timeout_s: Annotated[float, Field(gt=0)]


class ExecuteAction(Contract):
    """Carry out one action against the workspace of the last committed step. One answer: ``action_executed``."""

    step: Annotated[int, Field(ge=1)]
    action: Action
    tools: tuple[ToolName, ...]
    """The tools this task may call."""
    workspace: ArtifactRef | None = None
    """The workspace after the last committed step; ``None``: start from ``inputs``."""
    inputs: tuple[InputFile, ...] = ()
    limits: SandboxLimits
    """What each of its commands may use, nowhere more than ``allowance`` leaves."""
    allowance: Allowance | None = None
    """What all its commands may use together, checks included; ``None``: the task has no budgets for tool calls."""
    isolation: Isolation
    secrets: tuple[SecretName, ...] = ()
    """Names; the values come from the executor's own side."""
    environment: Environment = Environment()
    egress: Egress | None = None
    """What the action may reach over the network; its checks reach nothing."""
    checks: tuple[Check, ...] = ()
    """Given with ``submit`` alone: run against the submission."""
    approvals: ApprovalRule = "never"
    approved: bool = False
    """A person has approved this very action; without it an action that ``approvals`` covers is answered with ``needs_review``."""
    redactions: tuple[Redaction, ...] = ()
    """Replaced in what the action says, before anything of it is stored."""


class UpdatePolicy(Contract):
    """Run one update on a batch of trajectories and publish a new version. Idempotent by ``batch_id``."""

    batch_id: str
    batch: ArtifactRef
    """JSON of ``learning.samples.Batch``."""
    policy: PolicyName
    base_version: Annotated[int, Field(ge=0), Most(1_000_000_000)]
    algorithm: Literal["grpo"] = "grpo"


class CancelTask(Contract):
    """End a task as cancelled, whatever it is doing."""

    reason: Annotated[str, StringConstraints(max_length=1024)] = "cancelled by request"
    by: Person = UNKNOWN


class PauseTask(Contract):
    """Park a task after the call in flight; nothing is held and its clock stops."""

    by: Person = UNKNOWN


class ResumeTask(Contract):
    """Go on with a paused task."""

    by: Person = UNKNOWN


class MessageTask(Contract):
    """Tell a running task something. Messages are kept in order and shown before its next model call."""

    text: Annotated[str, StringConstraints(min_length=1, max_length=16_384)]
    by: Person = UNKNOWN


class ApproveAction(Contract):
    """Decide an action that waits for a person."""

    step: Annotated[int, Field(ge=1)]
    approved: bool
    reason: Annotated[str, StringConstraints(max_length=1024)] = ""
    by: Person = UNKNOWN


class ExpireTask(Contract):
    """The wall-clock budget of a task has run out; sent by its timer."""


class Sweep(Contract):
    """Remove what nobody can want any more; sent by a schedule. Any number of times, in any order, comes to the same."""

    orphans_after_s: Annotated[float, Field(ge=10_800), Most(1_000_000_000)]
    """Seconds after which an object that no row refers to is removed. A transaction may take long to refer to its own."""
    keep_spans_s: Annotated[float, Field(gt=0), Most(1_000_000_000)]
    """Seconds that the span store remembers."""


class RecordFeedback(Contract):
    """A person's score of a finished task; a new version of its reward."""

    score: Annotated[float, Field(ge=0, le=1)]
    comment: Annotated[str, StringConstraints(max_length=4096)] = ""
    by: Person = UNKNOWN
