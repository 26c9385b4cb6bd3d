"""What the commands of one tool call take of their task's budgets, one after the other."""

from dataclasses import replace

from longstride.agent.allowance import TOOL_BUDGETS, ToolBudget, after, bounded, bounded_egress, used_up
from longstride.agent.number import plain
from longstride.contracts.v1.limits import Allowance, Share
from longstride.sandbox.base import Command, Execution

OF_TASK = "limits."
"""Where the fields are in a submission, as an execution names them."""


class Spending:
    """Of one call. Its commands run one at a time."""

    def __init__(self, allowance: Allowance | None) -> None:
        """``allowance``: what the call has; ``None``: as much as it wants."""
        self._left = allowance

    def bounded(self, command: Command) -> Command | None:
        """The command, held at what is left; ``None`` when nothing is."""
        if used_up(self._left):
            return None
        return replace(
            command,
            limits=bounded(command.limits, self._left),
            egress=bounded_egress(command.egress, self._left),
        )

    def refusal(self) -> Execution:
        """How a command ends for which nothing is left."""
        budget = used_up(self._left)
        assert budget is not None, "something is left"
        return self._stopped(Execution("limit", None, b"", b""), budget)

    def counted(self, command: Command, execution: Execution) -> Execution:
        """What was run, with all it used; told of the task's budget where that is what stopped it."""
        used = execution.usage.model_copy(
            update={
                "output_bytes": execution.written,
                "sent_bytes": sum(connection.sent for connection in execution.connections),
                "received_bytes": sum(connection.received for connection in execution.connections),
            }
        )
        execution = replace(execution, usage=used)
        if self._left is None:
            return execution
        stopping = self._stopping(command, execution)
        told = self._stopped(execution, stopping) if stopping else execution
        self._left = after(self._left, used)
        return told

    def _stopping(self, command: Command, execution: Execution) -> ToolBudget | None:
        """The task's budget behind the limit that stopped a command, where that is not the call's own."""
        name = (execution.limit or "").partition("=")[0]
        budget = next((budget for budget in TOOL_BUDGETS if budget.call_limit == name), None)
        share = budget.share(self._left) if budget else None
        return budget if share and share.left <= getattr(command.limits, name, share.left) else None

    def _stopped(self, execution: Execution, budget: ToolBudget) -> Execution:
        share = budget.share(self._left)
        assert isinstance(share, Share), "only a budget that there is stops a command"
        limit = f"{OF_TASK}{budget.name}={plain(share.most)}"
        return replace(execution, limit=limit, share=f"{plain(share.left, 3)} {budget.unit}")
