"""What a task and a tool call may use at the most."""

from typing import Annotated, Literal

from pydantic import Field

from longstride.contracts.model import Contract
from longstride.contracts.most import Most

Isolation = Literal["process", "gvisor", "microvm"]
"""The boundary a task needs: a shared kernel, a user-space kernel, or a virtual machine."""

Positive = Annotated[int, Field(gt=0), Most(1_000_000_000_000)]
PositiveSeconds = Annotated[float, Field(gt=0, le=7 * 86_400)]
PositiveAmount = Annotated[float, Field(gt=0), Most(1_000_000_000)]
"""What is above is no limit, but a slip of the pen: where a field takes ``None``, that says that there is none. The bounds of
``SandboxLimits`` are those of the largest machines that there are."""


class Limits(Contract):
    """The hard budgets of a task, checked in the planner's transaction."""

    steps: Annotated[int, Field(gt=0, le=100_000)] = 30
    """Plan → execute → reflect turns."""
    tokens: Positive = 200_000
    """Input and output tokens of all model calls together."""
    cost_usd: PositiveAmount | None = None
    """Money that model calls may cost; ``None`` is no limit."""
    wall_clock_s: PositiveSeconds = 3600.0
    """Seconds of running time; time parked (paused, waiting for approval) does not count."""
    format_errors: Positive = 4
    """Model answers in a row that are not one valid action."""
    submissions: Positive = 3
    """Times the agent may submit and fail its checks."""
    subtasks: Annotated[int, Field(ge=0, le=64)] = 8
    """Sub-tasks that the task may start, its descendants' included."""
    step_timeout_s: PositiveSeconds = 120.0
    """Seconds for one tool call."""
    model_timeout_s: PositiveSeconds = 180.0
    """Seconds for one model call."""
    cpu_s: PositiveAmount | None = None
    """CPU seconds of all tool calls together, a submission's checks included; ``None`` is no limit, as for those below."""
    tool_s: PositiveAmount | None = None
    """Seconds that all tool calls run, together."""
    output_mb: PositiveAmount | None = None
    """MiB of standard output and error that the commands of all tool calls write, together."""
    sent_mb: PositiveAmount | None = None
    """MiB that all tool calls send over the network, together."""
    received_mb: PositiveAmount | None = None
    """MiB that all tool calls receive over the network, together."""


class Share(Contract):
    """What a tool call has of one budget of its task."""

    most: PositiveAmount
    """The whole budget."""
    left: Annotated[float, Field(ge=0)]
    """What earlier calls have left of it: this one is stopped there."""


class Allowance(Contract):
    """What a tool call has of its task's budgets for tool calls; see ``Limits`` for each. ``None``: no limit."""

    cpu_s: Share | None = None
    tool_s: Share | None = None
    output_mb: Share | None = None
    sent_mb: Share | None = None
    received_mb: Share | None = None


class SandboxLimits(Contract):
    """What one tool call may use inside its sandbox."""

    wall_s: PositiveSeconds = 120.0
    """Seconds before the sandbox is killed."""
    cpu_s: PositiveSeconds = 60.0
    """CPU seconds."""
    cpus: Annotated[float, Field(gt=0, le=256)] = 1.0
    """Cores' worth of CPU bandwidth."""
    memory_mb: Annotated[int, Field(ge=16), Most(16 << 20)] = 512
    """Resident memory, tmpfs and shared memory included."""
    processes: Annotated[int, Field(ge=4), Most(1 << 22)] = 64
    """Processes and threads; Linux counts to 4,194,304."""
    disk_mb: Annotated[int, Field(ge=1), Most(16 << 20)] = 256
    """MiB the workspace may hold, and any one file wherever it lies."""
    files: Annotated[int, Field(ge=16), Most(100_000_000)] = 20_000
    """Inodes the workspace may hold; /tmp and shared memory together may hold as many."""
    output_bytes: Annotated[int, Field(ge=256), Most(64 << 20)] = 1_048_576
    """Bytes of standard output and error kept, in the executor's memory; the rest is read and dropped."""
    output_mb: Annotated[float, Field(gt=0), Most(1 << 20)] = 16
    """MiB of standard output and error that a command may write before it is killed."""
