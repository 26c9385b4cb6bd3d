"""What a tool call may use of its task's budgets: hard for all calls together, because each is stopped at what is left."""

from collections.abc import Callable
from dataclasses import dataclass

from longstride.contracts.v1.action import Usage
from longstride.contracts.v1.egress import Egress
from longstride.contracts.v1.events import EndReason
from longstride.contracts.v1.limits import Allowance, Limits, SandboxLimits, Share

MEBIBYTE = 1 << 20
BYTE = 1 / MEBIBYTE
LEAST = BYTE
"""A sub-task's share of nothing: a budget is more than 0, and this one is used up at the first call that takes of it."""


@dataclass(frozen=True, slots=True)
class ToolBudget:
    """One budget that all tool calls of a task share."""

    name: str
    """Its field in ``Limits`` and ``Allowance``."""
    unit: str
    what: str
    reason: EndReason
    """Why a task ends that has used it up."""
    of: Callable[[Usage], float]
    """What a usage takes of it."""
    call_limit: str
    """The limit of one call that is held at what is left, as an execution names it."""
    least: float = 0.0
    """Of less than this nothing can be used."""

    def most(self, limits: Limits) -> float | None:
        """The whole of it; ``None``: no limit."""
        most: float | None = getattr(limits, self.name)
        return most

    def share(self, allowance: Allowance | None) -> Share | None:
        """What a call has of it; ``None``: no limit."""
        share: Share | None = getattr(allowance, self.name, None)
        return share

    def is_used_up(self, left: float) -> bool:
        """Whether so much is nothing."""
        return left <= 0 or left < self.least


TOOL_BUDGETS = (
    ToolBudget("cpu_s", "s", "CPU seconds of tool calls", "cpu_exhausted", lambda used: used.cpu_ms / 1e3, "cpu_s"),
    ToolBudget(
        "tool_s", "s", "seconds of tool calls", "tool_time_exhausted", lambda used: used.wall_ms / 1e3, "wall_s"
    ),
    ToolBudget(
        "output_mb",
        "MiB",
        "MiB of tool output",
        "output_exhausted",
        lambda used: used.output_bytes / MEBIBYTE,
        "output_mb",
        BYTE,
    ),
    ToolBudget(
        "sent_mb",
        "MiB",
        "MiB sent over the network",
        "network_exhausted",
        lambda used: used.sent_bytes / MEBIBYTE,
        "egress.sent_bytes",
        BYTE,
    ),
    ToolBudget(
        "received_mb",
        "MiB",
        "MiB received over the network",
        "network_exhausted",
        lambda used: used.received_bytes / MEBIBYTE,
        "egress.received_bytes",
        BYTE,
    ),
)


def allowance(limits: Limits, used: Usage) -> Allowance | None:
    """What is left for the next call; ``None`` when the task has no such budget."""
    shares = {
        budget.name: Share(most=most, left=max(0.0, most - budget.of(used)))
        for budget in TOOL_BUDGETS
        if (most := budget.most(limits)) is not None
    }
    return Allowance(**shares) if shares else None


def after(left: Allowance, used: Usage) -> Allowance:
    """What a call still has once one of its commands has used so much."""
    shares = {budget.name: share for budget in TOOL_BUDGETS if (share := budget.share(left))}
    taken = {budget.name: budget.of(used) for budget in TOOL_BUDGETS}
    return Allowance(
        **{
            name: share.model_copy(update={"left": max(0.0, share.left - taken[name])})
            for name, share in shares.items()
        }
    )


def parted(limits: Limits, used: Usage, parts: int) -> dict[str, float]:
    """What each of so many sub-tasks gets of what is left, as fields of its ``Limits``."""
    left = allowance(limits, used)
    shares = {budget.name: share.left for budget in TOOL_BUDGETS if (share := budget.share(left))}
    return {name: max(LEAST, amount / parts) for name, amount in shares.items()}


def used_up(left: Allowance | None) -> ToolBudget | None:
    """The first budget of which nothing is left, or ``None``."""
    return next((b for b in TOOL_BUDGETS if (share := b.share(left)) and b.is_used_up(share.left)), None)


def bounded(limits: SandboxLimits, left: Allowance | None) -> SandboxLimits:
    """A call's own limits, nowhere above what is left."""
    lower = {
        budget.call_limit: share.left
        for budget in TOOL_BUDGETS
        if (share := budget.share(left)) and share.left < getattr(limits, budget.call_limit, 0.0)
    }
    return limits.model_copy(update=lower)


def bounded_egress(egress: Egress | None, left: Allowance | None) -> Egress | None:
    """A call's way out, each way held at what is left."""
    if egress is None or left is None:
        return egress
    shares = {"sent_bytes": left.sent_mb, "received_bytes": left.received_mb}
    lower = {way: _least(getattr(egress, way), share) for way, share in shares.items() if share}
    return egress.model_copy(update=lower)


def _least(own: int | None, share: Share) -> int:
    left = int(share.left * MEBIBYTE)
    return left if own is None else min(own, left)
