"""Real sandboxes for tests: bubblewrap where it is, and what a host must show after it was attacked from inside."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.action import Action
from longstride.contracts.v1.check import Check
from longstride.contracts.v1.commands import ExecuteAction
from longstride.contracts.v1.events import ActionExecuted
from longstride.contracts.v1.input_file import InputFile
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import NEVER, Cancellation, Command, Execution, Volume
from longstride.sandbox.bubblewrap import BubblewrapSandbox
from longstride.sandbox.egress.gate import Gates
from longstride.sandbox.workspace import Workspaces
from longstride.storage.memory import MemoryArtifacts
from longstride.tools.executor import Executor
from longstride.tools.registry import builtin_tools

SMALL = SandboxLimits(
    wall_s=20, cpu_s=10, cpus=1, memory_mb=96, processes=24, disk_mb=8, files=500, output_bytes=65_536
)


@dataclass
class Arena:
    """A backend, and an executor above it."""

    backend: BubblewrapSandbox
    workspaces: Workspaces
    artifacts: MemoryArtifacts
    executor: Executor

    @contextmanager
    def volume(self, limits: SandboxLimits = SMALL) -> Iterator[Volume]:
        """A workspace directory without an executor around it."""
        volume = self.backend.volumes.create(limits)
        try:
            yield volume
        finally:
            self.backend.volumes.destroy(volume)

    def python(self, code: str, limits: SandboxLimits = SMALL, cancelled: Cancellation = NEVER) -> Execution:
        """A program in a sandbox of its own; no process of it may be left."""
        return self.run(("python3", "-c", code), limits, cancelled)

    def shell(self, command: str, limits: SandboxLimits = SMALL) -> Execution:
        """A command line in a sandbox of its own."""
        return self.run(("/bin/bash", "-c", command), limits)

    def run(self, argv: Sequence[str], limits: SandboxLimits = SMALL, cancelled: Cancellation = NEVER) -> Execution:
        """Any command."""
        with self.volume(limits) as volume:
            execution = self.backend.run(Command(tuple(argv), volume, limits), cancelled)
            assert processes_of(volume) == [], "the sandbox left processes behind"
        return execution

    def act(
        self,
        tool: str,
        *,
        task: str = "task",
        workspace: ArtifactRef | None = None,
        inputs: Sequence[InputFile] = (),
        checks: Sequence[Check] = (),
        limits: SandboxLimits = SMALL,
        cancelled: Cancellation = NEVER,
        **arguments: object,
    ) -> ActionExecuted:
        """One action through the executor."""
        command = ExecuteAction(
            step=1,
            action=Action.model_validate({"tool": tool, "arguments": arguments}),
            tools=(),
            workspace=workspace,
            inputs=tuple(inputs),
            limits=limits,
            isolation="process",
            checks=tuple(checks),
        )
        return self.executor.execute(command, task_id=task, session_id="session", cancelled=cancelled)


@contextmanager
def arena(scratch: Path | None = None, gates: Gates | None = None) -> Iterator[Arena]:
    """Skips where there is no bubblewrap, except in continuous integration, where it fails."""
    if shutil.which("bwrap") is None:
        reason = "bubblewrap is not installed"
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    backend = BubblewrapSandbox(scratch, gates)
    artifacts = MemoryArtifacts()
    workspaces = Workspaces(artifacts, backend.volumes)
    try:
        yield Arena(backend, workspaces, artifacts, Executor(backend, workspaces, artifacts, builtin_tools()))
    finally:
        workspaces.close()
        backend.close()


def processes_of(volume: Volume) -> list[int]:
    """Pids that run under a volume's ids; none can be told apart where there are none of its own."""
    if volume.owner is None:
        return []
    return [
        int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _owned(path, volume.owner.uid)
    ]


def _owned(process: Path, uid: int) -> bool:
    try:
        return process.stat().st_uid == uid and "zombie" not in (process / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
