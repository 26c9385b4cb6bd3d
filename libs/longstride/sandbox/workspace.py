"""Workspaces: each step starts from the state that the last committed step left, whatever happened in between.

A state is a manifest in the artifact store. The directory that was last committed stays as a cache, and is used only where
it is that state exactly; any other case restores the manifest into an empty volume.
"""

import os
import subprocess
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.input_file import InputFile
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox import manifest as m
from longstride.sandbox.base import Volume, Volumes
from longstride.sandbox.beneath import open_beneath
from longstride.sandbox.collect import MEBIBYTE, Collected, Seen, collect
from longstride.sandbox.content import ContentStore
from longstride.sandbox.errors import SandboxFailed, WorkspaceUnusable
from longstride.sandbox.files import WorkspaceFiles
from longstride.sandbox.restore import in_parallel, lay_inputs, restore


@dataclass(frozen=True, slots=True)
class State:
    """What a volume is known to hold."""

    ref: ArtifactRef | None
    """``None``: the task's inputs, which no manifest describes yet."""
    manifest: m.Manifest
    seen: Mapping[str, Seen]


FRESH = State(None, m.Manifest(), {})


class Workspaces:
    """Opens workspaces. One task's workspace is open once at a time; many tasks may be open from many threads."""

    def __init__(
        self, artifacts: ContentStore, volumes: Volumes, *, max_live: int = 16, max_live_bytes: int = 512 << 20
    ) -> None:
        """
        Args:
            artifacts: where states lie.
            volumes: where directories come from; the backend's own, so that its code may write them.
            max_live: directories kept as a cache at the most.
            max_live_bytes: bytes that they may hold together.
        """
        self._artifacts = artifacts
        self._volumes = volumes
        self._max_live = max_live
        self._max_live_bytes = max_live_bytes
        self._live: OrderedDict[str, tuple[Volume, State]] = OrderedDict()
        self._guard = threading.Lock()

    def open(
        self,
        task_id: str,
        ref: ArtifactRef | None,
        inputs: Sequence[InputFile] = (),
        limits: SandboxLimits | None = None,
    ) -> "Workspace":
        """The workspace in the state ``ref``, or with the task's inputs alone.

        Raises:
            InputUnusable: an input is missing, altered or too large.
            WorkspaceUnusable: the state is larger than the limits allow.
            WorkspaceCorrupt: ``ref`` is not a manifest.
            ArtifactMissing, ArtifactCorrupt: the state is gone.
        """
        limits = limits or SandboxLimits()
        live = self._take(task_id)
        if live and live[1].ref == ref and self._volumes.fit(live[0], limits):
            return Workspace(self, task_id, live[0], live[1], limits)
        if live:
            self._volumes.destroy(live[0])
        return self._rebuild(task_id, ref, inputs, limits)

    def forget(self, task_id: str) -> None:
        """The task has ended: its cached directory goes."""
        if live := self._take(task_id):
            self._volumes.destroy(live[0])

    def close(self) -> None:
        """Drop every cached directory."""
        with self._guard:
            doomed, self._live = self._live, OrderedDict()
        for volume, _ in doomed.values():
            self._volumes.destroy(volume)

    def _rebuild(
        self, task_id: str, ref: ArtifactRef | None, inputs: Sequence[InputFile], limits: SandboxLimits
    ) -> "Workspace":
        manifest = m.decode(self._artifacts.get(ref)) if ref else m.Manifest()
        _require_fit(manifest, limits)
        volume = self._volumes.create(limits)
        try:
            if ref:
                restore(manifest, volume, lambda path: self._artifacts.get(m.blob_ref(ref, manifest.files[path])))
            else:
                lay_inputs(inputs, volume, limits, self._input)
        except BaseException:
            self._volumes.destroy(volume)
            raise
        return Workspace(self, task_id, volume, State(ref, manifest, {}) if ref else FRESH, limits)

    def _input(self, file: InputFile) -> bytes:
        return self._artifacts.get(file.ref) if file.ref else (file.text or "").encode()

    def _take(self, task_id: str) -> tuple[Volume, State] | None:
        with self._guard:
            return self._live.pop(task_id, None)

    def _keep(self, task_id: str, volume: Volume, state: State) -> None:
        doomed = []
        with self._guard:
            if before := self._live.pop(task_id, None):
                doomed.append(before[0])
            self._live[task_id] = (volume, state)
            while self._live and self._over_budget():
                doomed.append(self._live.popitem(last=False)[1][0])
        for old in doomed:
            self._volumes.destroy(old)

    def _over_budget(self) -> bool:
        held = sum(state.manifest.size for _, state in self._live.values())
        return len(self._live) > self._max_live or held > self._max_live_bytes


class Workspace:
    """One open workspace: committed, released or discarded exactly once. As a context manager it discards what was not committed."""

    def __init__(
        self, workspaces: Workspaces, task_id: str, volume: Volume, state: State, limits: SandboxLimits
    ) -> None:
        self._workspaces = workspaces
        self._task_id = task_id
        self._state = state
        self._limits = limits
        self._open = True
        self.volume = volume
        self.left_out: tuple[str, ...] = ()
        """After a commit: what was there and is not kept, e.g. ``run/socket (socket)``."""

    @property
    def files(self) -> WorkspaceFiles:
        """Reading and writing from the host's side, never through a link that leads out."""
        return WorkspaceFiles(self.volume)

    def commit(self, session: str) -> ArtifactRef:
        """Store what changed; the same state in the same session is the same reference, and nothing is written.

        Call it only when no process of the sandbox is left.

        Raises:
            WorkspaceUnusable: it cannot be kept; it is discarded, and the next ``open`` gives the state before.
        """
        assert self._open, "a workspace is committed, released or discarded once"
        collected = collect(self.volume, self._limits, self._state.seen)
        ref = self._store(collected, session)
        self._open = False
        self.left_out = tuple(collected.left_out)
        if collected.exact:
            self._workspaces._keep(self._task_id, self.volume, State(ref, collected.manifest, collected.seen))
        else:
            self._workspaces._volumes.destroy(self.volume)
        return ref

    def release(self) -> ArtifactRef | None:
        """Nothing was changed: keep the directory, and the state as it was opened."""
        assert self._open, "a workspace is committed, released or discarded once"
        self._open = False
        self._workspaces._keep(self._task_id, self.volume, self._state)
        return self._state.ref

    def discard(self) -> None:
        """The directory may hold anything: drop it."""
        if self._open:
            self._open = False
            self._workspaces._volumes.destroy(self.volume)

    def copy(self) -> "Workspace":
        """A second workspace with the same content, for what must not harm this one. It can only be discarded."""
        volumes = self._workspaces._volumes
        volume = volumes.create(self._limits, like=self.volume)
        source, target = os.fspath(self.volume.path) + "/.", os.fspath(volume.path)
        done = subprocess.run(["cp", "-a", "--", source, target], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            volumes.destroy(volume)
            raise SandboxFailed(f"the workspace could not be copied: {done.stderr.strip()[-500:]}")
        return Workspace(self._workspaces, self._task_id, volume, self._state, self._limits)

    def __enter__(self) -> "Workspace":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    def _store(self, collected: Collected, session: str) -> ArtifactRef:
        state, manifest = self._state, collected.manifest
        at_home = state.ref is not None and m.session_of(state.ref) == session
        if at_home and manifest == state.manifest:
            assert state.ref is not None
            return state.ref
        have = {entry.sha256 for entry in state.manifest.files.values()} if at_home else set()
        self._upload({e.sha256: path for path, e in manifest.files.items() if e.sha256 not in have}, session)
        return self._workspaces._artifacts.put(
            manifest.encode(), session=session, kind=m.MANIFEST, media_type=m.MEDIA_TYPE
        )

    def _upload(self, paths: Mapping[str, str], session: str) -> None:
        """Content first, then the manifest that names it."""
        root = os.open(self.volume.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            in_parallel(lambda item: self._upload_one(root, *item, session=session), sorted(paths.items()))
        finally:
            os.close(root)

    def _upload_one(self, root: int, sha256: str, path: str, *, session: str) -> None:
        with os.fdopen(open_beneath(root, path), "rb") as file:
            data = file.read(self._limits.disk_mb * MEBIBYTE)
        ref = self._workspaces._artifacts.put(data, session=session, kind=m.BLOB)
        if ref.sha256 != sha256:
            raise SandboxFailed(f"{path} changed while it was being collected")


def _require_fit(manifest: m.Manifest, limits: SandboxLimits) -> None:
    if manifest.size > limits.disk_mb * MEBIBYTE:
        raise WorkspaceUnusable(
            f"the workspace holds {manifest.size} bytes, and disk_mb={limits.disk_mb} is the limit: raise it"
        )
    if manifest.count > limits.files:
        raise WorkspaceUnusable(
            f"the workspace holds {manifest.count} entries, and files={limits.files} is the limit: raise it"
        )
