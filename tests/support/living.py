"""A task whose calls are made one after the other, each from the state that the one before left."""

from dataclasses import dataclass, field

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.action import Action
from longstride.contracts.v1.check import Check
from longstride.contracts.v1.commands import ExecuteAction
from longstride.contracts.v1.egress import Egress
from longstride.contracts.v1.events import ActionExecuted
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import NEVER, Cancellation
from longstride.tools.keeper_link import Executes

TOOLS = (
    "shell",
    "bash",
    "read_file",
    "write_file",
    "submit",
    "process_start",
    "process_poll",
    "process_send",
    "process_stop",
)


@dataclass
class LivingTask:
    """Remembers where it is."""

    executor: Executes
    limits: SandboxLimits
    task_id: str = "task"
    workspace: ArtifactRef | None = None
    step: int = 0
    egress: Egress | None = None
    tools: tuple[str, ...] = TOOLS
    secrets: tuple[str, ...] = ()
    last: ActionExecuted | None = field(default=None, repr=False)

    def call(
        self,
        tool: str,
        *,
        again: bool = False,
        cancelled: Cancellation = NEVER,
        checks: tuple[Check, ...] = (),
        **arguments: object,
    ) -> tuple[str, str]:
        """The status and text of the next step, or of the same step made ``again`` from where it started."""
        if not again:
            self.step += 1
            self._before = self.workspace
        command = ExecuteAction(
            step=self.step,
            action=Action.model_validate({"tool": tool, "arguments": arguments}),
            tools=self.tools,
            secrets=self.secrets,
            workspace=self._before,
            limits=self.limits,
            isolation="process",
            checks=checks,
            egress=self.egress,
        )
        self.last = self.executor.execute(command, task_id=self.task_id, session_id="session", cancelled=cancelled)
        assert self.last.observation is not None, self.last
        self.workspace = self.last.workspace
        return self.last.observation.status, self.last.observation.text
