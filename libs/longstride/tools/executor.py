"""One action: open the workspace, carry the action out, judge a submission, commit, answer."""

import errno
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from longstride.agent.message_room import OF_ARTIFACTS, size, with_room
from longstride.agent.redaction import redact, redact_check
from longstride.contracts.artifact import ArtifactRef, NamedArtifact
from longstride.contracts.v1.action import CheckResult, Observation, ObservationStatus, Usage
from longstride.contracts.v1.commands import ExecuteAction
from longstride.contracts.v1.egress import Connection, Traffic
from longstride.contracts.v1.events import ActionExecuted
from longstride.sandbox.base import NEVER, Cancellation, SandboxBackend
from longstride.sandbox.content import ContentStore
from longstride.sandbox.egress.served import Served
from longstride.sandbox.errors import (
    ExecutionCancelled,
    InputUnusable,
    IsolationUnavailable,
    WorkspaceUnusable,
)
from longstride.sandbox.files import FileRefused, relative
from longstride.sandbox.secrets import MemorySecrets, Secrets, values_of, without_secrets
from longstride.sandbox.workspace import Workspaces
from longstride.storage.errors import StorageFull
from longstride.tools.examiner import Examiner
from longstride.tools.household import Households
from longstride.tools.observation import clip, printable
from longstride.tools.registry import AnyTool, Registry
from longstride.tools.shelf import NotKept, Shelf
from longstride.tools.submit import SubmitArguments
from longstride.tools.task_processes import TaskProcesses
from longstride.tools.tool import Arguments, Bench, InvalidArguments, ToolResult
from longstride.tools.traffic import traffic

MEBIBYTE = 1 << 20
PLAIN_TEXT = "text/plain; charset=utf-8"


class Refused(Exception):
    """The action is not carried out; the agent is told why."""

    def __init__(self, status: ObservationStatus, text: str) -> None:
        super().__init__(text)
        self.status: ObservationStatus = status


@dataclass(frozen=True, slots=True)
class Call:
    """One action, understood."""

    command: ExecuteAction
    tool: AnyTool
    arguments: Arguments
    session: str
    bench: Bench


@dataclass(frozen=True, slots=True)
class Judgement:
    """What came of a submission."""

    checks: tuple[CheckResult, ...] = ()
    artifacts: tuple[NamedArtifact, ...] = ()
    usage: Usage = field(default_factory=Usage)

    @property
    def tally(self) -> str:
        """What the agent reads of its submission; the planner adds each failure's detail."""
        return (
            f"{sum(check.passed for check in self.checks)} of {len(self.checks)} checks passed" if self.checks else ""
        )


class Executor:
    """Carries out actions, from many threads at once. It holds nothing but caches: killed at any point and asked again, it
    answers the same."""

    def __init__(
        self,
        backend: SandboxBackend,
        workspaces: Workspaces,
        artifacts: ContentStore,
        registry: Registry,
        secrets: Secrets | None = None,
        packages: Served | None = None,
        households: Households | None = None,
    ) -> None:
        """
        Args:
            backend: makes sandboxes.
            workspaces: of the backend's volumes.
            artifacts: where results go.
            registry: the tools.
            secrets: where the values are that tasks name; ``None``: there are none.
            packages: an index of them; ``None``: there is none.
            households: processes that live between calls; ``None``: they are kept nowhere, and the tools say so.
        """
        self._households = households
        self._backend = backend
        self._workspaces = workspaces
        self._artifacts = artifacts
        self._registry = registry
        self._secrets = secrets or MemorySecrets()
        self._packages = packages

    def execute(
        self,
        command: ExecuteAction,
        *,
        task_id: str,
        session_id: str,
        tenant: str = "default",
        cancelled: Cancellation = NEVER,
    ) -> ActionExecuted:
        """Carry out one action against the workspace it names.

        What the agent did wrong is an observation. What the task's author did wrong is ``input_error`` or a check's
        ``error``; a boundary that this executor cannot give is ``error``.

        Raises:
            ExecutionCancelled: ``cancelled`` was set; the workspace is discarded.
            StorageFull: the host's disk is full; nothing is lost, and the same call can be made again.
            SandboxFailed: the sandbox broke; the same call can be made again.
            WorkspaceCorrupt: ``command.workspace`` is not a workspace.
            StorageError: the artifact store cannot be reached, or the workspace's state is gone.
        """
        unchanged = ActionExecuted(step=command.step, workspace=command.workspace)
        with _full_host_is_infrastructure():
            try:
                secrets = values_of(self._secrets, tenant, command.secrets)
                secrets |= self._own_secrets(command, tenant)
                call = self._understand(command, task_id, session_id, cancelled, secrets)
                if question := needs_person(command, call.tool):
                    return unchanged.model_copy(update={"needs_review": True, "review": question})
                return self._carry_out(call)
            except Refused as refused:
                told = redact(without_secrets(_shown(refused), secrets), command.redactions)
                observation = self._observe(told, session_id, status=refused.status)
                return unchanged.model_copy(update={"observation": observation})
            except InputUnusable as error:
                return unchanged.model_copy(update={"input_error": str(error)})
            except (IsolationUnavailable, WorkspaceUnusable) as error:
                return unchanged.model_copy(update={"error": str(error)})

    def _understand(
        self, command: ExecuteAction, task_id: str, session: str, cancelled: Cancellation, secrets: Mapping[str, bytes]
    ) -> Call:
        """The tool, its arguments and its bench.

        Raises:
            Refused: there is no such tool, it may not be called, or its arguments do not fit.
            IsolationUnavailable: the backend's boundary is too weak for the task, or has no way out.
        """
        tool = self._permitted(command)
        try:
            arguments = tool.parse(command.action.arguments)
        except InvalidArguments as error:
            raise Refused("invalid", str(error)) from error
        self._backend.capabilities().require(command.isolation)
        self._backend.capabilities().require_egress(command.egress)
        bench = self._bench(command, tool, task_id, session, cancelled, secrets)
        return Call(command, tool, arguments, session, bench)

    def _own_secrets(self, command: ExecuteAction, tenant: str) -> dict[str, bytes]:
        """Those of the tool itself. The task did not ask for them, so it goes on where they are missing.

        Raises:
            Refused: one is unknown.
        """
        tool = self._permitted(command)
        try:
            return values_of(self._secrets, tenant, tool.secrets)
        except InputUnusable as error:
            raise Refused("failed", f"{tool.name} cannot be called: {error}") from error

    def _permitted(self, command: ExecuteAction) -> AnyTool:
        name = command.action.tool
        tool = self._registry.get(name)
        allowed = self._registry.allowed(command.tools)
        if tool is None:
            raise Refused("invalid", f"there is no tool {name!r}; the tools are {', '.join(allowed)}")
        if name not in allowed:
            raise Refused("denied", f"this task may not call {name}; its tools are {', '.join(allowed)}")
        if tool.planner_side:
            raise Refused("denied", f"{name} is carried out by the planner, which did not")
        return tool

    def _bench(
        self,
        command: ExecuteAction,
        tool: AnyTool,
        task_id: str,
        session: str,
        cancelled: Cancellation,
        secrets: Mapping[str, bytes],
    ) -> Bench:
        wall_s = min(command.limits.wall_s, tool.time_limit_s)
        return Bench(
            self._backend,
            lambda: self._workspaces.open(task_id, command.workspace, command.inputs, command.limits),
            command.limits.model_copy(update={"wall_s": wall_s}),
            command.isolation,
            cancelled,
            secrets,
            command.environment,
            Shelf(self._artifacts, session, secrets),
            command.egress,
            command.allowance,
            self._packages,
            self._processes(task_id, command.step),
        )

    def _processes(self, task_id: str, step: int) -> TaskProcesses | None:
        return (
            TaskProcesses(self._households, self._households.of(task_id), task_id, step) if self._households else None
        )

    def _carry_out(self, call: Call) -> ActionExecuted:
        bench = call.bench
        try:
            began = time.monotonic()
            result = call.tool.run(call.arguments, bench)
            if call.tool.kept:
                result = _with_waiting(result, time.monotonic() - began)
            judgement = self._judge(call)
            result = _with_processes(call, result)
            if bench.cancelled.is_set():
                raise ExecutionCancelled
            return self._settle(call, result, judgement)
        finally:
            if bench.opened:
                bench.opened.discard()

    def _judge(self, call: Call) -> Judgement:
        """A submission's checks and files; nothing for other tools."""
        if not isinstance(call.arguments, SubmitArguments):
            return Judgement()
        artifacts = tuple(self._hand_in(call, path) for path in dict.fromkeys(call.arguments.artifacts))
        if sum(map(size, artifacts)) > OF_ARTIFACTS:
            raise Refused(
                "invalid", "not submitted: the names of the artifacts are too long together; hand in an archive"
            )
        examiner = Examiner(call.bench, self._artifacts, call.arguments.answer)
        checks = tuple(_redacted(examiner.judge(check), call.bench.secrets) for check in call.command.checks)
        return Judgement(checks, artifacts, examiner.usage)

    def _hand_in(self, call: Call, path: str) -> NamedArtifact:
        try:
            name = relative(call.bench.inside(path))
            content = call.bench.workspace.files.read(name, call.bench.limits.disk_mb * MEBIBYTE)
        except FileRefused as refused:
            raise Refused("invalid", f"not submitted: artifact {refused}") from refused
        if not name.isprintable():
            raise Refused("invalid", f"not submitted: artifact {name!r} has a name that cannot be shown; rename it")
        try:
            return call.bench.shelf.put(name, content.data)
        except NotKept as refused:
            raise Refused("invalid", f"not submitted: artifact {refused}") from refused

    def _settle(self, call: Call, result: ToolResult, judgement: Judgement) -> ActionExecuted:
        """Commit, then tell; a workspace that cannot be kept is told of instead."""
        text = judgement.tally or printable(result.output)
        try:
            workspace, note = self._commit(call)
        except WorkspaceUnusable as error:
            assert call.bench.opened is not None, "it was opened to be committed"
            call.bench.opened.discard(f"the workspace could not be kept: {error}")
            workspace, note = call.command.workspace, f"\n{error}. The workspace is as it was before this call."
            result = replace(result, status="limit")
        return ActionExecuted(
            step=call.command.step,
            observation=self._observe(
                redact(without_secrets(text + note, call.bench.secrets), call.command.redactions),
                call.session,
                result=result,
            ),
            workspace=workspace,
            checks=with_room([redact_check(check, call.command.redactions) for check in judgement.checks]),
            artifacts=judgement.artifacts + result.artifacts,
            usage=result.usage + judgement.usage,
            traffic=self._traffic(call),
        )

    def _traffic(self, call: Call) -> Traffic | None:
        """``None``: it had no network, and asked the executor itself for nothing."""
        connections = call.bench.connections
        if not call.command.egress and not connections:
            return None
        told = [_without_secrets(connection, call.bench.secrets) for connection in connections]
        return traffic(told, self._artifacts, call.session)

    def _commit(self, call: Call) -> tuple[ArtifactRef | None, str]:
        """The new state, and what the agent must know of it."""
        opened = call.bench.opened
        if opened is None:
            return call.command.workspace, ""
        if not call.tool.changes_workspace:
            return opened.release(), ""
        with call.bench.still():
            own = set(call.tool.secrets).difference(call.command.secrets)
            ref = opened.commit(call.session, call.bench.secrets, own)
            if call.bench.processes:
                call.bench.processes.household.committed()
        left_out = ", ".join(map(printable_path, opened.left_out[:20]))
        return ref, f"\n[not kept in the workspace: {left_out}]" if left_out else ""

    def _observe(
        self, text: str, session: str, *, status: ObservationStatus = "ok", result: ToolResult | None = None
    ) -> Observation:
        """The text as the agent sees it; all of it goes to the artifact store when that is only a part."""
        text = text or "(no output)"
        full = None
        if clip(text, "").left_out:
            full = self._artifacts.put(text.encode(), session=session, kind="observation", media_type=PLAIN_TEXT)
        shown = clip(text, full.key if full else "").text
        if result is None:
            return Observation(status=status, text=shown, full=full)
        return Observation(status=result.status, text=shown, full=full, exit_code=result.exit_code, limit=result.limit)


def _with_waiting(result: ToolResult, seconds: float) -> ToolResult:
    """A call that waits for a process takes time, whatever the process itself is charged."""
    return replace(result, usage=result.usage.model_copy(update={"wall_ms": result.usage.wall_ms + seconds * 1e3}))


def _with_processes(call: Call, result: ToolResult) -> ToolResult:
    """Whatever the call is, it is charged with the task's processes that have ended."""
    bench = call.bench
    if bench.processes is None:
        return result
    usage, connections = bench.processes.household.account(call.command.step)
    bench.connections += connections
    return replace(result, usage=result.usage + usage)


def needs_person(command: ExecuteAction, tool: AnyTool) -> str | None:
    """What a person is asked before this tool runs; ``None`` when nobody needs to be."""
    if command.approved or command.approvals == "never":
        return None
    if command.approvals == "always":
        return f"every action of this task needs approval: {tool.name}"
    return f"{tool.name} needs approval: its effect cannot be taken back" if tool.idempotency == "unsafe" else None


def _redacted(result: CheckResult, secrets: Mapping[str, bytes]) -> CheckResult:
    """A check may print what the call could read."""
    if not secrets:
        return result
    told = {name: without_secrets(text, secrets) for name in ("detail", "error") if (text := getattr(result, name))}
    return result.model_copy(update=told)


def _without_secrets(connection: Connection, secrets: Mapping[str, bytes]) -> Connection:
    """A program may ask for a host that is named by a secret, by accident."""
    if not secrets:
        return connection
    host, why = (without_secrets(text, secrets) for text in (connection.host, connection.why))
    return connection.model_copy(update={"host": host[:255], "why": why[:300]})


def _shown(refused: Refused) -> str:
    """It may repeat what the agent asked for, whatever that holds."""
    return printable(str(refused).encode(errors="surrogateescape"))


def printable_path(path: str) -> str:
    """A path as one line of text."""
    return printable(path.encode(errors="surrogateescape")).replace("\n", "\\n")


@contextmanager
def _full_host_is_infrastructure() -> Iterator[None]:
    """A full host is infrastructure: the attempt is made again later."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(f"no room is left on the executor's host: {error}") from error
        raise
