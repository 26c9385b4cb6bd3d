"""A task as the command line describes it: the options of ``run`` and ``submit``."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from longstride.client.cli.allowed_hosts import way_out
from longstride.client.connect import Deployment
from longstride.client.errors import UsageProblem
from longstride.client.input_files import InputFiles
from longstride.client.policy_name import seen_from_here
from longstride.client.port import DEFAULT_TENANT, TaskHandle
from longstride.client.soundness import require_sound, sealed
from longstride.contracts.envelope import MessageError, explain
from longstride.contracts.ids import new_id
from longstride.contracts.v1.commands import SubmitTask
from longstride.contracts.v1.limits import SandboxLimits

if TYPE_CHECKING:
    from longstride.client.terminal.task import TerminalTask
    from longstride.storage.artifacts import ArtifactStore

WORK, LIMITS, POLICY, PLACE = "What to do", "Limits", "Who thinks", "Where it belongs"
GROUP_TEMPERATURE = 1.0
"""Siblings that sampled greedily would all be the same."""


def _opt(*names: str, panel: str, help: str, metavar: str | None = None, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, help=help, metavar=metavar, show_default=False, **more)


@dataclass(frozen=True, slots=True)
class Submission:
    """What the options said, before any file is read."""

    instruction: str
    inputs: list[str]
    fields: dict[str, Any]
    """Of ``SubmitTask``."""
    tenant: str
    session: str
    group: int
    json: bool
    terminal: "TerminalTask | None" = None
    """The folder that the instruction, the files and the check come from."""

    def publish(self, deployment: Deployment) -> list[TaskHandle]:
        """Read and upload the inputs, then publish: one task, or ``group`` siblings.

        Raises:
            UsageProblem: the task is not sound.
            ClientError: it cannot be published.
        """
        sealed(self._task(), session_id=self.session, tenant=self.tenant)  # refused before anything is uploaded
        InputFiles(None, self.session, self._disk_mb).require_all(self.inputs)  # and before a stack is started
        uploads = bool(self.inputs or self.terminal)
        files = self._files(deployment.artifacts if uploads else None)
        return [self._publish(deployment, self._task(**files, **changes)) for changes in self._siblings()]

    @property
    def _disk_mb(self) -> int:
        return int(self.fields["sandbox"].get("disk_mb", SandboxLimits().disk_mb))

    def _files(self, artifacts: "ArtifactStore | None") -> dict[str, Any]:
        """What is laid out: the inputs, and a folder's check with its hidden files."""
        files = InputFiles(artifacts, self.session, self._disk_mb)
        if self.terminal is None:
            return {"inputs": files.of(self.inputs)}
        return {
            **self._built(self.terminal, artifacts),
            "inputs": files.laid(self.terminal.files),
            "checks": (self.terminal.check(files.laid(self.terminal.hidden)),),
        }

    def _built(self, task: "TerminalTask", artifacts: "ArtifactStore | None") -> dict[str, Any]:
        """The workspace that a folder's many files or RUN steps make."""
        if task.build is None:
            return {}
        from longstride.client.failures import translated
        from longstride.client.screen.console import say
        from longstride.client.terminal.rehearsal import rehearsals

        if artifacts is None:
            raise UsageProblem(
                f"{task.folder} {task.build.why}: its workspace needs an artifact store: set LONGSTRIDE_S3_ENDPOINT,"
                " _ACCESS_KEY, _SECRET_KEY and _BUCKET"
            )
        with rehearsals() as backend, translated():
            built = task.built(backend, artifacts, self.session)
        assert built is not None, "there is something to build"
        for note in built.notes:
            say(note)
        return {"workspace": built.workspace}

    def _siblings(self) -> list[dict[str, Any]]:
        if self.group == 1:
            return [{}]
        sampling = {"temperature": GROUP_TEMPERATURE, **self.fields["sampling"]}
        seed, group_id, key = sampling.get("seed"), new_id("group"), self.fields.get("idempotency_key")
        return [
            {
                "group_id": group_id,
                "sampling": sampling if seed is None else {**sampling, "seed": seed + index},
                "idempotency_key": key and f"{key}/{index}",
            }
            for index in range(self.group)
        ]

    def _task(self, **changes: Any) -> SubmitTask:
        try:
            task = SubmitTask.model_validate({"instruction": self.instruction, **self.fields, **changes})
        except ValidationError as error:
            raise UsageProblem(f"not a task: {explain(error)}") from error
        require_sound(task)
        return task

    def _publish(self, deployment: Deployment, task: SubmitTask) -> TaskHandle:
        try:
            return deployment.client.submit(task, tenant=self.tenant, session_id=self.session)
        except MessageError as error:
            raise UsageProblem(str(error)) from error


def _described(
    instruction: Annotated[
        str | None,
        typer.Argument(metavar="INSTRUCTION", help="What to do, in words; - reads it from stdin.", show_default=False),
    ] = None,
    input: Annotated[
        list[str] | None,
        _opt(
            "--input",
            "-i",
            panel=WORK,
            metavar="FILE[:PATH]",
            help="A file for the workspace, at PATH. Repeat for more.",
        ),
    ] = None,
    check: Annotated[
        list[str] | None,
        _opt(
            "--check",
            "-c",
            panel=WORK,
            metavar="CMD",
            help="A shell command that passes with exit code 0; the answer is in $LONGSTRIDE_ANSWER. Repeat for more.",
        ),
    ] = None,
    expect: Annotated[
        str | None, _opt("--expect", panel=WORK, metavar="TEXT", help="The answer must be this text.")
    ] = None,
    expect_number: Annotated[
        float | None, _opt("--expect-number", panel=WORK, metavar="N", help="The answer must be this number.")
    ] = None,
    terminal_task: Annotated[
        Path | None,
        _opt(
            "--terminal-task",
            panel=WORK,
            metavar="DIR",
            help="A folder in the layout of Terminal-Bench or Harbor, instead of INSTRUCTION, --input and checks.",
        ),
    ] = None,
    tool: Annotated[
        list[str] | None,
        _opt("--tool", panel=WORK, metavar="NAME", help="Allow this tool alone (`longstride tools`). Repeat for more."),
    ] = None,
    agent: Annotated[
        str,
        _opt("--agent", panel=WORK, metavar="NAME", help="The agent definition whose rules on tools hold (default)."),
    ] = "default",
    secret: Annotated[
        list[str] | None,
        _opt(
            "--secret",
            panel=WORK,
            metavar="NAME",
            help="Let its tool calls read this secret of the tenant, in /run/longstride/secrets. Repeat for more.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        _opt(
            "--allow-host",
            panel=WORK,
            metavar="HOST[:PORT,…]",
            help="Let its programs reach this host (port 443), e.g. *.example.com:80,443. Repeat for more. Default: no network.",
        ),
    ] = None,
    network_rate: Annotated[
        int | None,
        _opt(
            "--network-rate",
            panel=LIMITS,
            metavar="KB",
            help="KiB a second that a tool call moves at most to and from allowed hosts, each way (2048).",
            min=1,
            max=10_000_000,
        ),
    ] = None,
    network_volume: Annotated[
        int | None,
        _opt(
            "--network-volume",
            panel=LIMITS,
            metavar="MB",
            help="MiB that a tool call moves at most, each way (64).",
            min=1,
            max=1_000_000,
        ),
    ] = None,
    approve: Annotated[
        str, _opt("--approve", panel=WORK, metavar="never|unsafe|always", help="Which actions wait for a person.")
    ] = "never",
    steps: Annotated[int | None, _opt("--steps", panel=LIMITS, metavar="N", help="Steps at most (30).")] = None,
    tokens: Annotated[
        int | None, _opt("--tokens", panel=LIMITS, metavar="N", help="Tokens of all model calls at most (200000).")
    ] = None,
    cost: Annotated[float | None, _opt("--cost", panel=LIMITS, metavar="USD", help="Money at most.")] = None,
    timeout: Annotated[
        float | None, _opt("--timeout", panel=LIMITS, metavar="SECONDS", help="Running time at most (3600).")
    ] = None,
    step_timeout: Annotated[
        float | None,
        _opt("--step-timeout", panel=LIMITS, metavar="SECONDS", help="Time of one tool call at most (120)."),
    ] = None,
    memory: Annotated[
        int | None, _opt("--memory", panel=LIMITS, metavar="MB", help="Memory of a tool call at most (512).")
    ] = None,
    cpu: Annotated[
        float | None, _opt("--cpu", panel=LIMITS, metavar="SECONDS", help="CPU time of all tool calls together.")
    ] = None,
    tool_time: Annotated[
        float | None, _opt("--tool-time", panel=LIMITS, metavar="SECONDS", help="Time of all tool calls together.")
    ] = None,
    output: Annotated[
        float | None, _opt("--output", panel=LIMITS, metavar="MB", help="What all tool calls print, together.")
    ] = None,
    sent: Annotated[
        float | None, _opt("--sent", panel=LIMITS, metavar="MB", help="What all tool calls send over the network.")
    ] = None,
    received: Annotated[
        float | None, _opt("--received", panel=LIMITS, metavar="MB", help="What all tool calls receive over it.")
    ] = None,
    disk: Annotated[
        int | None, _opt("--disk", panel=LIMITS, metavar="MB", help="What the workspace holds at most (256).")
    ] = None,
    policy: Annotated[
        str | None,
        _opt(
            "--policy",
            "-p",
            panel=POLICY,
            metavar="NAME",
            help="builtin, builtin@7, local:PATH, remote:URL or scripted:PATH.",
        ),
    ] = None,
    track: Annotated[
        str, _opt("--track", panel=POLICY, metavar="fast|deep", help="Which deployment serves the calls.")
    ] = "fast",
    temperature: Annotated[
        float | None, _opt("--temperature", panel=POLICY, metavar="T", help="0 is greedy (0; 1 with --group).")
    ] = None,
    seed: Annotated[int | None, _opt("--seed", panel=POLICY, metavar="N", help="Of the sampling.")] = None,
    group: Annotated[
        int,
        _opt(
            "--group",
            panel=POLICY,
            metavar="N",
            help="Sibling rollouts of the same task, for learning.",
            min=1,
            max=256,
        ),
    ] = 1,
    priority: Annotated[int, _opt("--priority", panel=PLACE, metavar="0-9", help="9 goes first (5).")] = 5,
    key: Annotated[
        str | None,
        _opt("--key", panel=PLACE, metavar="TEXT", help="Idempotency key: the same key gives the same task."),
    ] = None,
    concurrency_key: Annotated[
        str | None, _opt("--concurrency-key", panel=PLACE, metavar="TEXT", help="Tasks of one key run one at a time.")
    ] = None,
    session: Annotated[
        str | None, _opt("--session", panel=PLACE, metavar="ID", help="The session that owns it (a new one).")
    ] = None,
    tenant: Annotated[
        str, _opt("--tenant", panel=PLACE, metavar="NAME", help="Whose it is; tenants take turns.")
    ] = DEFAULT_TENANT,
    json: Annotated[bool, typer.Option("--json", help="JSON for programs; JSON Lines while following.")] = False,
) -> Submission:
    """The template of every command that publishes a task."""
    fields = {
        "checks": _checks(check or [], expect, expect_number),
        "tools": tuple(tool) if tool else None,
        "agent": agent,
        "secrets": tuple(secret or ()),
        "egress": way_out(allow_host or [], network_rate, network_volume),
        "approvals": approve,
        "limits": _given(
            steps=steps,
            tokens=tokens,
            cost_usd=cost,
            wall_clock_s=timeout,
            step_timeout_s=step_timeout,
            cpu_s=cpu,
            tool_s=tool_time,
            output_mb=output,
            sent_mb=sent,
            received_mb=received,
        ),
        "sandbox": _given(memory_mb=memory, disk_mb=disk),
        "policy": policy and seen_from_here(policy),
        "track": track,
        "sampling": _given(temperature=temperature, seed=seed),
        "priority": priority,
        "idempotency_key": key,
        "concurrency_key": concurrency_key,
    }
    session = session or new_id("session")
    if terminal_task is not None:
        _refuse_beside_a_folder(
            INSTRUCTION=instruction, input=input, check=check, expect=expect, expect_number=expect_number
        )
        return _of_folder(terminal_task, fields, tenant, session, group, json)
    if instruction is None:
        raise UsageProblem("say what to do: an INSTRUCTION, or --terminal-task DIR")
    told = _standard_input() if instruction == "-" else instruction
    return Submission(told, input or [], fields, tenant, session, group, json)


def _refuse_beside_a_folder(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            option = name if name.isupper() else f"--{name.replace('_', '-')}"
            raise UsageProblem(f"{option} and --terminal-task exclude each other: the folder says it")


def _of_folder(folder: Path, fields: dict[str, Any], tenant: str, session: str, group: int, json: bool) -> Submission:
    """The folder's task; limits that were given as options win over its own."""
    from longstride.client.screen.console import say
    from longstride.client.terminal.importer import read

    task = read(folder)
    for note in task.notes:
        say(note)
    merged = {
        **fields,
        **task.fields,
        "limits": {**task.fields["limits"], **fields["limits"]},
        "sandbox": {**task.fields["sandbox"], **fields["sandbox"], **_longer(fields["limits"])},
    }
    return Submission(task.instruction, [], merged, tenant, session, group, json, task)


def _longer(limits: dict[str, Any]) -> dict[str, Any]:
    """``--step-timeout`` is the whole of a call's time, where the folder's own would hold it down."""
    return {"wall_s": limits["step_timeout_s"]} if "step_timeout_s" in limits else {}


def takes_task(command: Callable[[Submission], None]) -> Callable[..., None]:
    """A command with the options of a task, which gets what they said."""

    @wraps(_described)
    def described(**options: Any) -> None:
        command(_described(**options))

    described.__name__, described.__doc__ = command.__name__, command.__doc__
    described.__signature__ = inspect.signature(_described).replace(return_annotation=None)  # type: ignore[attr-defined]
    described.__annotations__ = {**_described.__annotations__, "return": None}
    return described


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UsageProblem(f"standard input is not UTF-8 text: {error.reason} at byte {error.start}") from error


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _checks(commands: list[str], expect: str | None, number: float | None) -> list[dict[str, Any]]:
    names = ["command"] if len(commands) == 1 else [f"command {i}" for i in range(1, len(commands) + 1)]
    checks: list[dict[str, Any]] = [
        {"kind": "command", "name": name, "run": run} for name, run in zip(names, commands, strict=True)
    ]
    if expect is not None:
        checks.append({"kind": "answer", "name": "answer", "equals": expect})
    if number is not None:
        checks.append({"kind": "answer", "name": "number", "number": number})
    return checks
