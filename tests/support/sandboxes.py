"""Real sandboxes for tests: bubblewrap where it is, and what a host must show after it was attacked from inside."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.action import Action
from longstride.contracts.v1.check import Check
from longstride.contracts.v1.commands import ExecuteAction
from longstride.contracts.v1.egress import Egress
from longstride.contracts.v1.environment import WORKSPACE, Environment
from longstride.contracts.v1.events import ActionExecuted
from longstride.contracts.v1.input_file import InputFile
from longstride.contracts.v1.limits import Allowance, SandboxLimits
from longstride.sandbox import backends, cgroup
from longstride.sandbox.backends import BackendName
from longstride.sandbox.base import NEVER, Cancellation, Command, Execution, SandboxBackend, Volume
from longstride.sandbox.bubblewrap import BubblewrapSandbox
from longstride.sandbox.cgroup import Cgroup
from longstride.sandbox.demand import Bounds
from longstride.sandbox.docker import LABEL, DockerSandbox
from longstride.sandbox.egress.gate import Gates
from longstride.sandbox.hosted import HostedBackend
from longstride.sandbox.oci import OciSandbox
from longstride.sandbox.pool import Pool
from longstride.sandbox.scratch import Scratch
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

    backend: SandboxBackend
    scratch: Scratch
    """The backend's."""
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

    def left_over(self) -> set[str]:
        """Control groups or containers on the host that belong to no sandbox that waits in the pool."""
        if isinstance(self.backend, DockerSandbox):
            return {container["Id"] for container in self.backend._api.containers(all=True, filters={"label": LABEL})}
        groups = {path.name for h in self.scratch.hierarchies for path in h.base.glob(f"{self.scratch.name}-*")}
        waiting = self.backend.level.ready if isinstance(self.backend, Pool) else 0
        return groups if len(groups) != waiting else set()

    def groups(self) -> list[Path]:
        """Control groups of all sandboxes that are there, in each hierarchy of the host."""
        if not isinstance(self.backend, DockerSandbox):
            return [path for h in self.scratch.hierarchies for path in h.base.glob(f"{self.scratch.name}-*")]
        api, own = self.backend._api, {"label": f"{LABEL}={self.scratch.name}"}
        found = (_group_of(api, container["Id"]) for container in api.containers(filters=own))
        return [h.base / group.name for group in found if group for h in group.hierarchies]

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
        environment: Environment = Environment(),
        tools: Sequence[str] = (),
        egress: Egress | None = None,
        allowance: Allowance | None = None,
        **arguments: object,
    ) -> ActionExecuted:
        """One action through the executor."""
        command = ExecuteAction(
            step=1,
            action=Action.model_validate({"tool": tool, "arguments": arguments}),
            tools=tuple(tools),
            workspace=workspace,
            inputs=tuple(inputs),
            limits=limits,
            allowance=allowance,
            isolation="process",
            environment=environment,
            checks=tuple(checks),
            egress=egress,
        )
        return self.executor.execute(command, task_id=task, session_id="session", cancelled=cancelled)


def _group_of(api: Any, container: str) -> Cgroup | None:
    """Nothing when it has ended."""
    import docker.errors

    with suppress(docker.errors.NotFound, StopIteration):
        return cgroup.of_process(api.inspect_container(container)["State"]["Pid"])
    return None


POOL = "pool"
"""Bubblewrap with a pool above it, in the tests that go through all backends."""


def hosted_backend(name: BackendName, scratch: Path | None = None, gates: Gates | None = None) -> HostedBackend:
    """Skips as ``arena`` does.

    Args:
        name: bubblewrap or runc where ``gates`` are given.
        scratch: as the backend takes it.
        gates: ways out that a test has opened.
    """
    program = backends.PROGRAMS[name]
    if shutil.which(program) is None:
        reason = f"{program} is not installed"
        if os.environ.get("CI") and name == backends.DEFAULT:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    if gates:
        return OciSandbox("runc", scratch, gates) if name == "runc" else BubblewrapSandbox(scratch, gates)
    backend = backends.make(name, scratch)
    assert isinstance(backend, HostedBackend)
    return backend


@contextmanager
def arena(scratch: Path | None = None, name: str = backends.DEFAULT, gates: Gates | None = None) -> Iterator[Arena]:
    """Skips where its program is missing, except for bubblewrap in continuous integration, where that fails."""
    hosted = hosted_backend(backends.DEFAULT if name == POOL else cast(BackendName, name), scratch, gates)
    backend = Pool(hosted, Bounds(floor=2, ceiling=4)) if name == POOL else hosted
    artifacts = MemoryArtifacts()
    workspaces = Workspaces(artifacts, backend.volumes)
    executor = Executor(backend, workspaces, artifacts, builtin_tools())
    try:
        yield Arena(backend, hosted._scratch, workspaces, artifacts, executor)
    finally:
        workspaces.close()
        backend.close()


def processes_of(volume: Volume) -> list[int]:
    """Pids that have this volume for their workspace; a plain directory tells nobody apart. A sandbox that is being built has
    it elsewhere, for a moment."""
    if not volume.bounded:
        return []
    status = volume.path.stat()
    device = f" {os.major(status.st_dev)}:{os.minor(status.st_dev)} / {WORKSPACE} "
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _sees(path, device)]


def _sees(process: Path, device: str) -> bool:
    try:
        return device in (process / "mountinfo").read_text() and not _dead(process)
    except OSError:
        return False


def _dead(process: Path) -> bool:
    return "zombie" in (process / "status").read_text()
