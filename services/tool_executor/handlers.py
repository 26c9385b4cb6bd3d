"""Message in → the action carried out in a sandbox → message out."""

from functools import partial

from longstride.agent.redaction import redact
from longstride.contracts.envelope import Envelope
from longstride.contracts.v1.commands import ExecuteAction
from longstride.messaging.lease import HeldLease
from longstride.messaging.work import Answer, WorkHandler
from longstride.observability import names
from longstride.observability.redact import hiding
from longstride.observability.spans import Attributes, set_attributes, span
from longstride.sandbox.errors import ExecutionCancelled
from longstride.tools.keeper_link import Executes


class ToolExecutor:
    """Carries out actions. It decides nothing: what may run, where and within which limits is in the command."""

    def __init__(self, executor: Executes) -> None:
        self._executor = executor

    def execute_action(self, envelope: Envelope, message: ExecuteAction, held: HeldLease) -> Answer | None:
        """Run the action; ``None`` when the lease was lost and the sandbox killed."""
        assert envelope.task_id is not None, "the planner addresses every command"
        assert envelope.session_id is not None, "the planner addresses every command"
        tool = message.action.tool
        attributes: Attributes = {names.OPERATION: names.EXECUTE_TOOL, names.TOOL_NAME: tool, names.STEP: message.step}
        secrets = hiding(partial(redact, redactions=message.redactions))
        with secrets, span(names.EXECUTE_TOOL, tool, attributes=attributes) as current:
            try:
                executed = self._executor.execute(
                    message,
                    task_id=envelope.task_id,
                    session_id=envelope.session_id,
                    tenant=envelope.tenant,
                    cancelled=held.lost,
                )
            except ExecutionCancelled:
                return None
            seen = executed.observation
            set_attributes(
                current,
                {
                    names.STATUS: seen.status if seen else None,
                    names.EXIT_CODE: seen.exit_code if seen else None,
                },
            )
            return Answer(executed)


def handlers(tool_executor: ToolExecutor) -> dict[str, WorkHandler]:
    """The tool-executor's rows of the flow."""
    return {"execute_action": tool_executor.execute_action}
