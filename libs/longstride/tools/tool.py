"""What a tool is, and what it works with."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from longstride.contracts.artifact import NamedArtifact
from longstride.contracts.envelope import explain
from longstride.contracts.v1.action import IdempotencyClass, ObservationStatus, ToolSpec, Usage
from longstride.contracts.v1.egress import Connection, Egress
from longstride.contracts.v1.environment import Environment
from longstride.contracts.v1.limits import Allowance, Isolation, SandboxLimits
from longstride.sandbox.base import NEVER, Cancellation, Command, Execution, Sandbox, SandboxBackend
from longstride.sandbox.egress.served import NO_SITES, Served, Sites, way_to
from longstride.sandbox.errors import ExecutionCancelled, NetworkGone
from longstride.sandbox.secrets import NO_SECRETS, mounted
from longstride.sandbox.workspace import Workspace
from longstride.tools.observation import printable
from longstride.tools.packages.place import installed, seeing
from longstride.tools.shelf import Shelf
from longstride.tools.spending import OF_TASK, Spending
from longstride.tools.task_processes import TaskProcesses
from longstride.tools.traffic import refused_connections

NO_FILES: Mapping[str, bytes] = {}


class InvalidArguments(ValueError):
    """The arguments do not fit the tool's schema; the text names each field and what was expected."""


class Arguments(BaseModel):
    """Base of a tool's arguments: closed, and strict about types; field docstrings become the schema's descriptions."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


A = TypeVar("A", bound=Arguments)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool did. ``output`` may be any length and hold any bytes; the executor makes the observation from it."""

    status: ObservationStatus
    output: bytes
    exit_code: int | None = None
    limit: str | None = None
    usage: Usage = field(default_factory=Usage)
    artifacts: tuple[NamedArtifact, ...] = ()
    """What it put into the task's session."""


class Bench:
    """What a tool works with: the task's workspace, opened when it is first asked for, and sandboxes to run commands in."""

    def __init__(
        self,
        backend: SandboxBackend,
        open_workspace: Callable[[], Workspace],
        limits: SandboxLimits,
        isolation: Isolation = "process",
        cancelled: Cancellation = NEVER,
        secrets: Mapping[str, bytes] = NO_SECRETS,
        environment: Environment = Environment(),
        shelf: Shelf | None = None,
        egress: Egress | None = None,
        allowance: Allowance | None = None,
        packages: Served | None = None,
        processes: TaskProcesses | None = None,
    ) -> None:
        self.backend = backend
        self.limits = limits
        self.isolation = isolation
        self.cancelled = cancelled
        self.secrets = secrets
        self.environment = environment
        self._shelf = shelf
        self.egress = egress
        self._spending = Spending(allowance)
        self.packages = packages
        """The operator's package index; ``None``: there is none."""
        self.processes = processes
        """Those that live between the task's calls; ``None``: this executor keeps none."""
        self.connections: list[Connection] = []
        """What the commands asked of the network so far."""
        self.opened: Workspace | None = None
        """``None`` until a tool touches the workspace; most of a step's cost is spared when none does."""
        self._open_workspace = open_workspace

    @property
    def workspace(self) -> Workspace:
        """The task's workspace."""
        if self.opened is None:
            self.opened = self._open_workspace()
            if self.processes:
                self.processes.household.settle_in(self.opened)
        return self.opened

    def still(self) -> AbstractContextManager[None]:
        """The task's processes that live between calls do not write meanwhile."""
        return self.processes.household.still() if self.processes else nullcontext()

    @property
    def shelf(self) -> Shelf:
        """The task's session in the artifact store."""
        assert self._shelf is not None, "an executor has an artifact store"
        return self._shelf

    def inside(self, path: str) -> str:
        """A path through a link of the task's environment as the workspace's own: ``/app/a`` → ``/workspace/a``."""
        for link, target in sorted(self.environment.links.items(), reverse=True):
            if path == link or path.startswith(f"{link}/"):
                return target + path.removeprefix(link)
        return path

    def run(
        self,
        *argv: str,
        wall_s: float | None = None,
        output_bytes: int | None = None,
        files: Mapping[str, bytes] = NO_FILES,
        sites: Sites = NO_SITES,
    ) -> Execution:
        """Run a command in a sandbox of its own, within the limits and ``wall_s``.

        Args:
            argv: the command.
            wall_s: less time than the task's limit.
            output_bytes: keep more of the output than the task's limit, for a report that is read by the tool itself.
            files: laid beside the secrets, as in ``Command``.
            sites: hosts that its proxy answers itself; then it reaches no other.

        Raises:
            ExecutionCancelled: it was killed from outside.
        """
        wall = min(self.limits.wall_s, wall_s or self.limits.wall_s)
        kept = max(self.limits.output_bytes, output_bytes or 0)
        limits = self.limits.model_copy(update={"wall_s": wall, "output_bytes": kept})
        plain = self.command(*argv)
        command = replace(
            plain,
            limits=limits,
            files={**plain.files, **files},
            egress=way_to(sites) if sites else plain.egress,
            sites=sites,
        )
        execution = self.carry_out(command)
        self.connections += execution.connections
        return execution

    def bounded(self, command: Command) -> Command | Execution:
        """The command, held at what is left of the task's budgets; how it ends where nothing is."""
        return self._spending.bounded(command) or self._spending.refusal()

    def carry_out(self, command: Command) -> Execution:
        """Run a command within what is left of the task's budgets.

        Raises:
            ExecutionCancelled: it was killed from outside.
        """
        bounded = self.bounded(command)
        if isinstance(bounded, Execution):
            return bounded
        return _uncancelled(self.charged(bounded, self._run(bounded)))

    def look(self, command: Command) -> Execution:
        """Run a command that the host wants to know something by: it takes nothing of the task's budgets.

        Raises:
            ExecutionCancelled: it was killed from outside.
        """
        return _uncancelled(self._run(command))

    def charged(self, command: Command, execution: Execution) -> Execution:
        """What ``bounded`` let run, taken from the task's budgets; told of the one that stopped it."""
        return self._spending.counted(command, execution)

    def _run(self, command: Command) -> Execution:
        """A process that ended just now leaves no network to share."""
        try:
            return self.backend.run(command, self.cancelled)
        except NetworkGone:
            return self.backend.run(replace(command, network=None), self.cancelled)

    def command(self, *argv: str) -> Command:
        """What is run for the task: its workspace, secrets and environment, and the network of its live processes."""
        return Command(
            seeing(argv) if installed(self.workspace.volume) else argv,
            self.workspace.volume,
            self.limits,
            self.isolation,
            env=self.environment.variables,
            files=mounted(self.secrets),
            links=self.environment.links,
            egress=self.egress,
            network=self._network,
        )

    @property
    def _network(self) -> Sandbox | None:
        if self.processes and self.backend.capabilities().shares_network:
            return self.processes.household.network
        return None


class _PlainSchema(GenerateJsonSchema):
    """JSON Schema without the titles that pydantic makes up: they cost tokens and say nothing."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class Tool(ABC, Generic[A]):
    """One tool. Subclasses say what it is in attributes and do it in ``run``."""

    name: str
    description: str
    arguments: type[A]
    """One source for the schema and its validation."""
    idempotency: IdempotencyClass = "pure"
    """Effects on the workspace do not count: a step that is run again starts from the state before it."""
    time_limit_s: float = 3600.0
    """For one call, below the task's own limit."""
    offered: ClassVar[bool] = True
    """Whether a task that names no tools gets it."""
    planner_side: ClassVar[bool] = False
    """Carried out by the planner: the executor never sees it."""
    kept: ClassVar[bool] = False
    """Whether all calls of a task that may call it have to be carried out by one process."""
    changes_workspace: ClassVar[bool] = True
    """``False``: it only reads, and the workspace need not be looked through afterwards."""
    sends: bool = True
    """Whether what it does over the network may change something there; ``False``: an interrupted call may be made again."""
    secrets: tuple[str, ...] = ()
    """Names of secrets of the task's tenant that it needs itself, whether the task names them or not."""
    network: str = "none, but the hosts that the task names (--allow-host)"
    """What it reaches, for people."""
    example: Mapping[str, JsonValue] | None = None
    """Arguments of a call, for people; ``None``: what its schema asks for will do."""

    @cached_property
    def spec(self) -> ToolSpec:
        """As a policy sees it."""
        schema = self.arguments.model_json_schema(schema_generator=_PlainSchema)
        schema.pop("title", None)
        schema.pop("description", None)
        return ToolSpec(name=self.name, description=self.description, parameters=schema)

    def parse(self, arguments: Mapping[str, JsonValue]) -> A:
        """Validate a call's arguments.

        Raises:
            InvalidArguments: naming each field that does not fit, and what it must be.
        """
        try:
            return self.arguments.model_validate_json(json.dumps(arguments), strict=True)
        except ValidationError as error:
            fields = json.dumps(self.spec.parameters.get("properties", {}), ensure_ascii=False)
            raise InvalidArguments(f"{self.name}: {explain(error, 'arguments')}. Its arguments are {fields}") from error

    @abstractmethod
    def run(self, arguments: A, bench: Bench) -> ToolResult:
        """Do it. An agent's mistake is a result; only broken infrastructure raises."""


class PlannerTool(Tool[A]):
    """A tool that the planner carries out itself; here is what a policy is told of it."""

    planner_side = True

    def run(self, arguments: A, bench: Bench) -> ToolResult:
        """Never here."""
        raise AssertionError(f"{self.name} is carried out by the planner")


def of_execution(execution: Execution) -> ToolResult:
    """The result of a command: its output, then its errors, then how it ended when that was not well."""
    parts = [*map(_shown, (execution.stdout, execution.stderr)), ending(execution).encode()]
    parts[2:2] = [refused_connections(execution.connections).encode()]
    output = b"".join(part if part.endswith(b"\n") else part + b"\n" for part in parts if part)
    output = output.removesuffix(b"\n") if parts[3] else output
    return ToolResult(execution.status, output, execution.exit_code, execution.limit, execution.usage)


def _shown(stream: bytes) -> bytes:
    """Each by itself: bytes that are no text must not swallow the errors and the ending that follow them."""
    return printable(stream).encode() if stream else b""


def ending(execution: Execution) -> str:
    """How a command ended, when that was not well."""
    if execution.limit:
        by = named(execution)
        if execution.deadline:
            by = f"{execution.deadline}, while {by} held the network back,"
        return f"stopped by {by} after {_used(execution)}"
    if execution.passed:
        return f"[it went on after it had reached {', '.join(execution.passed)}; in all {_used(execution)}]"
    return f"exit code {execution.exit_code}" if execution.exit_code else ""


def _used(execution: Execution) -> str:
    """How far it got."""
    usage = execution.usage
    return (
        f"{usage.wall_ms / 1e3:.1f} s, {usage.cpu_ms / 1e3:.1f} s of CPU, "
        f"{usage.max_memory_mb:.0f} MB of memory and {execution.written / 2**20:.1f} MiB of output{_moved(execution)}"
    )


def named(execution: Execution) -> str:
    """The limit that stopped it, in words where it is the task's own."""
    if execution.share is None:
        return str(execution.limit)
    return (
        f"the task's {str(execution.limit).removeprefix(OF_TASK)} (this call had the {execution.share} that were left)"
    )


def _moved(execution: Execution) -> str:
    if not execution.connections:
        return ""
    sent, received = (sum(getattr(c, way) for c in execution.connections) for way in ("sent", "received"))
    return f", {sent / 2**20:.1f} MiB sent and {received / 2**20:.1f} MiB received"


def _uncancelled(execution: Execution) -> Execution:
    if execution.killed:
        raise ExecutionCancelled
    return execution
