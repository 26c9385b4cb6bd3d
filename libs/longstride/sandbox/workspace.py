"""Workspaces: each step starts from the state that the last committed step left, whatever happened in between.

A state is a snapshot in the artifact store. The directory that was last committed stays as a cache, and is used only where
it is that state exactly; any other case restores the snapshot into an empty volume.
"""

import os
import subprocess
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.input_file import InputFile
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox import pack, snapshot
from longstride.sandbox.base import Volume, Volumes
from longstride.sandbox.beneath import open_beneath
from longstride.sandbox.collect import MEBIBYTE, Collected, Known, collect
from longstride.sandbox.content import ContentStore
from longstride.sandbox.errors import SandboxFailed, WorkspaceUnusable
from longstride.sandbox.files import WorkspaceFiles
from longstride.sandbox.in_parallel import in_parallel
from longstride.sandbox.manifest import FileEntry, Manifest
from longstride.sandbox.recollect import recollect
from longstride.sandbox.restore import lay_inputs, restore
from longstride.sandbox.secrets import NO_SECRETS
from longstride.sandbox.snapshot import Snapshot
from longstride.sandbox.write_watch import WriteWatch, frozen

WATCHED_BYTES, WATCHED_FILES = 8 << 20, 500
"""From here on a memory file system is watched for writes: less is read again sooner than a watch is set up and ended."""


@dataclass(frozen=True, slots=True)
class State:
    """What a volume is known to hold."""

    snapshot: Snapshot | None = None
    """``None``: the task's inputs, which no snapshot describes yet."""
    laid: Collected | None = None
    """What lies there, file by file; ``None``: it is not known."""
    watch: WriteWatch | None = None
    """Of the volume, since ``laid``."""
    exact: bool = True
    """Whether the snapshot restores all of it; where it does not, only what is pinned stays in use."""

    @property
    def ref(self) -> ArtifactRef | None:
        """The snapshot's."""
        return self.snapshot.ref if self.snapshot else None

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return self.laid.bytes if self.laid else 0


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
        self._pinned: dict[Volume, Callable[[str], object]] = {}
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
            WorkspaceCorrupt: ``ref`` is not a snapshot.
            ArtifactMissing, ArtifactCorrupt: the state is gone.
        """
        limits = limits or SandboxLimits()
        live = self._take(task_id)
        if live and (why := self._unusable(*live, ref, limits)):
            self._drop(*live, why)
        elif live:
            return Workspace(self, task_id, live[0], live[1], limits)
        return self._rebuild(task_id, ref, inputs, limits)

    def pin(self, volume: Volume, lost: Callable[[str], object]) -> None:
        """Somebody works in this volume between steps: it is not dropped to make room.

        Args:
            volume: of an open workspace.
            lost: called with a reason before it is dropped all the same; then nobody may work in it any more.
        """
        with self._guard:
            self._pinned[volume] = lost

    def unpin(self, volume: Volume) -> None:
        """Nobody does any more, and all that was written is in a snapshot."""
        with self._guard:
            self._pinned.pop(volume, None)

    def forget(self, task_id: str) -> bool:
        """The task has ended, or pauses: its cached directory goes; whether there was one."""
        if live := self._take(task_id):
            self._drop(*live, "the task has ended")
        return live is not None

    def close(self) -> None:
        """Drop every cached directory."""
        with self._guard:
            doomed, self._live = self._live, OrderedDict()
        for volume, state in doomed.values():
            self._drop(volume, state, "the executor ends")

    def _unusable(self, volume: Volume, state: State, ref: ArtifactRef | None, limits: SandboxLimits) -> str | None:
        """Why a cached directory cannot be the state ``ref``."""
        if state.ref != ref:
            return (
                "a call was made again, or another executor went on with the task: the files are those of another step"
            )
        if not state.exact and volume not in self._pinned:
            return "not all in it could be kept"
        return None if self._volumes.fit(volume, limits) else "the workspace holds more than its limits allow"

    def _rebuild(
        self, task_id: str, ref: ArtifactRef | None, inputs: Sequence[InputFile], limits: SandboxLimits
    ) -> "Workspace":
        stored = snapshot.load(self._artifacts, ref) if ref else None
        if stored:
            _require_fit(stored.manifest, limits)
        volume = self._volumes.create(limits)
        try:
            if stored:
                laid = restore(stored, self._artifacts, volume)
                state = State(stored, laid, _watched(volume, stored.manifest))
            else:
                lay_inputs(inputs, volume, limits, self._input)
                state = State()
        except BaseException:
            self._volumes.destroy(volume)
            raise
        return Workspace(self, task_id, volume, state, limits)

    def _input(self, file: InputFile) -> bytes:
        return self._artifacts.get(file.ref) if file.ref else (file.text or "").encode()

    def _take(self, task_id: str) -> tuple[Volume, State] | None:
        with self._guard:
            return self._live.pop(task_id, None)

    def _keep(self, task_id: str, volume: Volume, state: State) -> None:
        doomed = []
        with self._guard:
            if before := self._live.pop(task_id, None):
                doomed.append(before)
            self._live[task_id] = (volume, state)
            while self._over_budget() and (oldest := next(self._evictable(), None)):
                doomed.append(self._live.pop(oldest))
        for old, of in doomed:
            self._drop(old, of, "another call of the task took its place")

    def _evictable(self) -> Iterator[str]:
        return (task_id for task_id, (volume, _) in self._live.items() if volume not in self._pinned)

    def _drop(self, volume: Volume, state: State, why: str) -> None:
        with self._guard:
            lost = self._pinned.pop(volume, None)
        if lost:
            lost(why)
        if state.watch:
            state.watch.close()
        self._volumes.destroy(volume)

    def _over_budget(self) -> bool:
        held = sum(_held(volume, state) for volume, state in self._live.values())
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
        self._fate = "the call was stopped"
        """Why it is discarded, where nobody says."""
        self.volume = volume
        self.left_out: tuple[str, ...] = ()
        """After a commit: what was there and is not kept, e.g. ``run/socket (socket)``."""

    @property
    def files(self) -> WorkspaceFiles:
        """Reading and writing from the host's side, never through a link that leads out."""
        return WorkspaceFiles(self.volume)

    def commit(
        self, session: str, secrets: Mapping[str, bytes] = NO_SECRETS, passing: Collection[str] = ()
    ) -> ArtifactRef:
        """Store what changed; the same state in the same session is the same reference, and nothing is written.

        Call it only when no process that may write is left, or all of them are paused.

        Args:
            session: whose the objects are.
            secrets: name → value; a file that holds one is left out.
            passing: names of those that the next commit may not know. It would keep such a file, so the workspace stays open, to
                be discarded, pinned or not: once those who are paused go on, for what is frozen may not die.

        Raises:
            WorkspaceUnusable: it cannot be kept; it is discarded, and the next ``open`` gives the state before.
        """
        assert self._open, "a workspace is committed, released or discarded once"
        with self._quiet() as touched:
            collected = self._collect(Known((self._state.laid and self._state.laid.seen) or {}, touched, secrets))
            stored = self._store(collected, session)
            watch = self._state.watch or _watched(self.volume, stored.manifest)
        self._state = State(stored, collected, watch, collected.exact)
        self.left_out = tuple(collected.left_out)
        if found := sorted(collected.withheld.intersection(passing)):
            self._fate = f"a file in the workspace held secret {found[0]}, which no other call may see"
            return stored.ref
        if not collected.exact and self.volume not in self._workspaces._pinned:
            self.discard()
            return stored.ref
        self._open = False
        self._workspaces._keep(self._task_id, self.volume, self._state)
        return stored.ref

    def release(self) -> ArtifactRef | None:
        """Nothing was changed: keep the directory, and the state as it was opened."""
        assert self._open, "a workspace is committed, released or discarded once"
        self._open = False
        self._workspaces._keep(self._task_id, self.volume, self._state)
        return self._state.ref

    def discard(self, why: str | None = None) -> None:
        """The directory may hold anything: drop it. ``why`` is for those who work in it between steps."""
        if self._open:
            self._open = False
            self._workspaces._drop(self.volume, self._state, why or self._fate)

    def copy(self) -> "Workspace":
        """A second workspace with the same content, for what must not harm this one. It can only be discarded."""
        volumes = self._workspaces._volumes
        volume = volumes.create(self._limits, like=self.volume)
        source, target = os.fspath(self.volume.path) + "/.", os.fspath(volume.path)
        done = subprocess.run(["cp", "-a", "--", source, target], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            volumes.destroy(volume)
            raise SandboxFailed(f"the workspace could not be copied: {done.stderr.strip()[-500:]}")
        return Workspace(self._workspaces, self._task_id, volume, State(self._state.snapshot), self._limits)

    def __enter__(self) -> "Workspace":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    @contextmanager
    def _quiet(self) -> Iterator[frozenset[int] | None]:
        """Nobody can write meanwhile, where that can be had; gives the inodes that something happened to, if known."""
        if not self.volume.bounded:
            yield None
            return
        with frozen(self.volume.path) as still:
            watch = self._state.watch
            yield watch.touched() if watch and still else None

    def _collect(self, known: Known) -> Collected:
        """All of it, or, where it is known what was touched, what became of that."""
        laid = self._state.laid
        if (
            laid is None
            or not laid.exact
            or known.touched is None
            or len(known.touched) > max(WATCHED_FILES, laid.count // 4)
        ):
            return collect(self.volume, self._limits, known)
        return recollect(self.volume, self._limits, laid, known) if known.touched else laid

    def _home(self, session: str) -> Snapshot | None:
        """The state that the workspace was opened in, if it is of the same session: objects of another may vanish."""
        before = self._state.snapshot
        return before if before and before.session == session else None

    def _store(self, collected: Collected, session: str) -> Snapshot:
        """Contents first, then the snapshot that names them."""
        before, manifest = self._home(session), collected.manifest
        if before is None:
            return snapshot.write_whole(
                self._artifacts, session, manifest, self._upload(manifest.files, set(), session)
            )
        changes = before.manifest.differing(manifest)
        if same := before.seen_before(manifest, changes):
            return same
        if before.ends_chain:
            kept = before.kept_packs(manifest)
            new = self._upload(manifest.files, {held.sha256 for one in kept for held in one.holds}, session)
            return snapshot.write_whole(self._artifacts, session, manifest, [*kept, *new])
        changed = {path: entry for path, entry in changes.items() if isinstance(entry, FileEntry)}
        new = self._upload(changed, before.contents(), session)
        return snapshot.write_delta(self._artifacts, before, manifest, changes, new)

    def _upload(self, files: Mapping[str, FileEntry], have: set[str], session: str) -> list[pack.Pack]:
        """Store the contents that are not there yet, packed in the order of their paths."""
        paths: dict[str, str] = {}
        for path in sorted(path for path, entry in files.items() if entry.sha256 not in have):
            paths.setdefault(files[path].sha256, path)
        sizes = [(digest, files[path].size) for digest, path in paths.items()]
        root = os.open(self.volume.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return in_parallel(
                lambda group: pack.write(
                    self._artifacts, session, {digest: self._reader(root, paths[digest]) for digest in group}
                ),
                list(pack.groups(sizes)),
            )
        finally:
            os.close(root)

    def _reader(self, root: int, path: str) -> Callable[[], bytes]:
        def read() -> bytes:
            with os.fdopen(open_beneath(root, path), "rb") as file:
                return file.read(self._limits.disk_mb * MEBIBYTE)

        return read

    @property
    def _artifacts(self) -> ContentStore:
        return self._workspaces._artifacts


def _watched(volume: Volume, manifest: Manifest) -> WriteWatch | None:
    """A watch over what is written from now on, where it pays and times alone would not tell."""
    if volume.honest_times or not volume.bounded:
        return None
    large = len(manifest.files) >= WATCHED_FILES or manifest.size >= WATCHED_BYTES
    return WriteWatch.start(volume.path) if large else None


def _held(volume: Volume, state: State) -> int:
    """Bytes. A memory file system counts its own: a file of no size can have room set aside for it (fallocate)."""
    if not volume.bounded:
        return state.size
    counted = os.statvfs(volume.path)
    return (counted.f_blocks - counted.f_bfree) * counted.f_frsize


def _require_fit(manifest: Manifest, limits: SandboxLimits) -> None:
    if manifest.size > limits.disk_mb * MEBIBYTE:
        raise WorkspaceUnusable(
            f"the workspace holds {manifest.size} bytes, and disk_mb={limits.disk_mb} is the limit: raise it"
        )
    if manifest.count > limits.files:
        raise WorkspaceUnusable(
            f"the workspace holds {manifest.count} entries, and files={limits.files} is the limit: raise it"
        )
