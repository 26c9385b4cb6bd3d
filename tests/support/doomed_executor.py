"""An executor that dies by SIGKILL at a named point of one action: ``python -m tests.support.doomed_executor``.

Arguments: scratch folder, artifact folder, point, the command as JSON, sandboxes that wait in its pool, backend.
Prints the answer when it lives.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.commands import ExecuteAction
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox import backends
from longstride.sandbox.backends import BackendName
from longstride.sandbox.base import NEVER, Cancellation, Command, Execution, SandboxBackend, Volume, Volumes
from longstride.sandbox.demand import Bounds
from longstride.sandbox.pool import Pool
from longstride.sandbox.workspace import Workspaces
from longstride.storage.disk import DiskArtifacts
from longstride.tools.executor import Executor
from longstride.tools.registry import builtin_tools

POINTS = (
    "before-volume",
    "after-volume",
    "before-read-2",
    "before-run",
    "during-run",
    "after-run",
    "before-pack-1",
    "after-pack-1",
    "before-workspace-1",
    "after-workspace-1",
    "before-observation-1",
    "after-observation-1",
)
"""In the order in which an action passes them."""


class Fate:
    """Kills this process when the chosen point is reached."""

    def __init__(self, chosen: str) -> None:
        self.chosen = chosen
        self._counts: dict[str, int] = {}

    def reach(self, point: str) -> None:
        if point == self.chosen:
            os.kill(os.getpid(), signal.SIGKILL)

    def reach_next(self, point: str) -> None:
        """``before-pack`` → ``before-pack-1``, ``before-pack-2``, …"""
        self._counts[point] = self._counts.get(point, 0) + 1
        self.reach(f"{point}-{self._counts[point]}")


class DoomedArtifacts(DiskArtifacts):
    fate: Fate

    def put(self, data: bytes, *, session: str, kind: str, media_type: str = "application/octet-stream") -> ArtifactRef:
        self.fate.reach_next(f"before-{kind}")
        ref = super().put(data, session=session, kind=kind, media_type=media_type)
        self.fate.reach_next(f"after-{kind}")
        return ref

    def get(self, ref: ArtifactRef) -> bytes:
        self.fate.reach_next("before-read")
        return super().get(ref)


class DoomedVolumes:
    def __init__(self, volumes: Volumes, fate: Fate) -> None:
        self._volumes, self._fate = volumes, fate
        self.fit, self.exhausted, self.destroy = volumes.fit, volumes.exhausted, volumes.destroy

    def create(self, limits: SandboxLimits, like: Volume | None = None) -> Volume:
        self._fate.reach("before-volume")
        volume = self._volumes.create(limits, like)
        self._fate.reach("after-volume")
        return volume


class DoomedSandbox:
    def __init__(self, backend: SandboxBackend, fate: Fate) -> None:
        self._backend, self._fate = backend, fate
        self.volumes = DoomedVolumes(backend.volumes, fate)
        self.capabilities, self.close = backend.capabilities, backend.close
        self.create, self.reap = backend.create, backend.reap

    def run(self, command: Command, cancelled: Cancellation = NEVER) -> Execution:
        self._fate.reach("before-run")
        if self._fate.chosen == "during-run":
            threading.Thread(target=self._die_midway, args=(command.workspace.path,), daemon=True).start()
        execution = self._backend.run(command, cancelled)
        self._fate.reach("after-run")
        return execution

    def _die_midway(self, workspace: Path) -> None:
        while not (workspace / "half").exists():
            pass
        self._fate.reach("during-run")


def main(scratch: str, artifacts: str, point: str, command: str, floor: str, name: BackendName) -> None:
    fate = Fate(point)
    store = DoomedArtifacts(Path(artifacts))
    store.fate = fate
    pool = Pool(backends.make(name, Path(scratch)), Bounds(floor=int(floor)))
    while pool.level.ready < int(floor):
        time.sleep(0.005)
    backend = DoomedSandbox(pool, fate)
    workspaces = Workspaces(store, backend.volumes)
    executor = Executor(backend, workspaces, store, builtin_tools())
    answer = executor.execute(ExecuteAction.model_validate_json(command), task_id="task", session_id="session")
    print(answer.model_dump_json())
    workspaces.close()
    backend.close()


def main_in(environment: Mapping[str, str], *arguments: str) -> None:
    """With more of an environment than the process has that this one is forked from."""
    os.environ.update(environment)
    main(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
