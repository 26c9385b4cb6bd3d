"""What a workspace's snapshots cost: 1 GB in 20,000 files, beside git and tar on the same changes."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import Volume
from longstride.sandbox.bubblewrap import BubblewrapSandbox
from longstride.sandbox.workspace import Workspaces
from longstride.storage.disk import DiskArtifacts
from tests.benchmarks.bench_footprint import timed
from tests.benchmarks.table import Row, Table

FILES, FILE_BYTES, FOLDERS = 20_000, 50_000, 200
LIMITS = SandboxLimits(disk_mb=1400, files=30_000)
WORDS = 4000
POOL_BYTES = 24 << 20
MEGABYTE = 1_000_000


@dataclass
class Written:
    """What one contender has put on the disk for one change."""

    seconds: float
    bytes: int
    objects: int

    def cells(self) -> tuple[str, str, str]:
        """For the table."""
        size = f"{self.bytes / MEGABYTE:.1f} MB" if self.bytes >= MEGABYTE else f"{self.bytes / 1000:.1f} kB"
        return f"{self.seconds:.3f}", size, str(self.objects)


@dataclass
class Text:
    """Files that look like text: words of a made-up language, the same in every run."""

    pool: bytes = b""
    random: Random = field(default_factory=lambda: Random(7))

    def __post_init__(self) -> None:
        letters = "etaoinshrdlucm"
        words = ["".join(self.random.choices(letters, k=self.random.randint(2, 9))) for _ in range(WORDS)]
        weights = [1 / (rank + 2) for rank in range(WORDS)]
        lines = (" ".join(self.random.choices(words, weights, k=9)) for _ in range(POOL_BYTES // 55))
        self.pool = "\n".join(lines).encode()

    def file(self) -> bytes:
        """Another one, of about ``FILE_BYTES``."""
        size = self.random.randint(FILE_BYTES // 2, FILE_BYTES * 3 // 2)
        start = self.random.randrange(len(self.pool) - size)
        return self.pool[start : start + size]


class Ours:
    """Workspaces with their objects on the disk."""

    def __init__(self, folder: Path, sandbox: BubblewrapSandbox) -> None:
        self._store = folder / "artifacts"
        self._sandbox = sandbox
        self._ref: ArtifactRef | None = None
        self._workspaces = self._fresh()

    def _fresh(self) -> Workspaces:
        return Workspaces(DiskArtifacts(self._store), self._sandbox.volumes, max_live_bytes=4 << 30)

    def change(self, edit: Callable[[Path], None]) -> Written:
        """A step that makes the change; only opening and committing is measured."""
        before = _stored(self._store)
        spent = timed(self._open)
        edit(self._workspace.volume.path)
        spent += timed(self._commit)
        after = _stored(self._store)
        return Written(spent, after[0] - before[0], after[1] - before[1])

    def restore(self) -> float:
        """Seconds until it is laid out where nothing is left."""
        self.close()
        self._workspaces = self._fresh()
        seconds = timed(self._open)
        self._workspace.release()
        return seconds

    def reopen(self) -> float:
        """Seconds until it is laid out where it is laid out still."""
        seconds = timed(self._open)
        self._workspace.release()
        return seconds

    def close(self) -> None:
        """Remove what is laid out."""
        self._workspaces.close()

    def _open(self) -> None:
        self._workspace = self._workspaces.open("task", self._ref, limits=LIMITS)

    def _commit(self) -> None:
        self._ref = self._workspace.commit("bench")


class Git:
    """``git add -A`` and ``git commit`` in a directory of the same kind, its objects on the same disk."""

    def __init__(self, folder: Path, volume: Volume) -> None:
        self._tree = volume.path
        self._store = folder / "git"
        self._git("init", "-q")
        for key, value in (("user.name", "bench"), ("user.email", "bench@localhost"), ("gc.auto", "0")):
            self._git("config", key, value)

    def change(self, edit: Callable[[Path], None]) -> Written:
        """A commit of the change."""
        before = _stored(self._store)
        edit(self._tree)
        seconds = timed(self._commit)
        after = _stored(self._store)
        return Written(seconds, after[0] - before[0], after[1] - before[1])

    def restore(self, volume: Volume) -> float:
        """Seconds of a checkout into an empty directory."""
        into = (f"--git-dir={self._store}", f"--work-tree={volume.path}")
        command = ["git", *into, "checkout", "-q", "-f", "HEAD", "--", "."]
        environment = {**os.environ, "GIT_INDEX_FILE": str(self._store / "fresh-index")}
        return timed(lambda: subprocess.run(command, check=True, cwd=volume.path, env=environment))

    def _commit(self) -> None:
        self._git("add", "-A")
        self._git("commit", "-q", "--allow-empty", "-m", "step")

    def _git(self, *arguments: str) -> None:
        command = ["git", f"--git-dir={self._store}", f"--work-tree={self._tree}", *arguments]
        subprocess.run(command, check=True, cwd=self._tree)


class Tar:
    """``tar | zstd -3``: all of it, each time."""

    def __init__(self, folder: Path, volume: Volume) -> None:
        self._tree = volume.path
        self._file = folder / "whole.tar.zst"

    def change(self) -> Written:
        """One archive of what is there."""
        command = f"tar -C '{self._tree}' -cf - . | zstd -3 -q -f -o '{self._file}' && sync '{self._file}'"
        seconds = timed(lambda: subprocess.run(["sh", "-c", command], check=True))
        return Written(seconds, self._file.stat().st_size, 1)

    def restore(self, volume: Volume) -> float:
        """Seconds to unpack it."""
        command = f"zstd -dc -q '{self._file}' | tar -C '{volume.path}' -xf -"
        return timed(lambda: subprocess.run(["sh", "-c", command], check=True))


def run() -> Table:
    """Measure, one contender after the other, each change the same; and say so in a table."""
    text = Text()
    changes = _changes(text)
    with _place() as (folder, sandbox):
        ours = Ours(folder, sandbox)
        mine = [ours.change(edit) for _, edit in changes]
        warm, cold = ours.reopen(), ours.restore()
        ours.close()
        with _volume(sandbox) as volume:
            git, tar = Git(folder, volume), Tar(folder, volume)
            git_rows = [git.change(edit) for _, edit in changes]
            whole = tar.change()
            with _volume(sandbox) as empty:
                checked_out = git.restore(empty)
            with _volume(sandbox) as empty:
                unpacked = tar.restore(empty)
    rows: list[Row] = [
        (name, *own.cells(), *its.cells(), *(whole.cells()[:2] if number == 0 else ("", "")))
        for number, ((name, _), own, its) in enumerate(zip(changes, mine, git_rows, strict=True))
    ]
    rows.append(("is opened where it is laid out still", f"{warm:.3f}", "", "", "", "", "", "", ""))
    rows.append(
        ("is restored into nothing", f"{cold:.3f}", "", "", f"{checked_out:.3f}", "", "", f"{unpacked:.3f}", "")
    )
    head = ("a step that …", "s", "written", "objects", "git s", "written", "files", "tar s", "written")
    return Table("Workspace: snapshots of 1 GB in 20,000 files", head, rows)


def _changes(text: Text) -> Sequence[tuple[str, Callable[[Path], None]]]:
    """Each edit writes the same bytes whenever it is called."""
    whole, one, hundred, new = text.random.random(), text.file(), [text.file() for _ in range(100)], text.file()
    return (
        ("makes all files", lambda root: _make(root, text, whole)),
        ("changes nothing", lambda root: None),
        ("reads all files", _read),
        ("changes 1 file", lambda root: _path(root, 4321).write_bytes(one) and None),
        ("changes 100 files", lambda root: _write(root, {200 * n + 7: data for n, data in enumerate(hundred)})),
        ("adds 500 files of 1 kB", lambda root: _write(root, {FILES + n: new[n : n + 1000] for n in range(500)})),
        ("removes 100 files", lambda root: [_path(root, 200 * n + 9).unlink() for n in range(100)] and None),
    )


def _make(root: Path, text: Text, seed: float) -> None:
    text.random.seed(seed)
    for number in range(FOLDERS):
        (root / f"folder-{number}").mkdir()
    for number in range(FILES):
        _path(root, number).write_bytes(text.file())


def _read(root: Path) -> None:
    for number in range(FILES):
        _path(root, number).read_bytes()


def _write(root: Path, files: dict[int, bytes]) -> None:
    for number, data in files.items():
        _path(root, number).write_bytes(data)


def _path(root: Path, number: int) -> Path:
    return root / f"folder-{number % FOLDERS}" / f"file-{number}.txt"


def _stored(folder: Path) -> tuple[int, int]:
    """(bytes, files) below a folder."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return sum(sizes), len(sizes)


@contextmanager
def _place() -> Iterator[tuple[Path, BubblewrapSandbox]]:
    folder, sandbox = Path(tempfile.mkdtemp(prefix="longstride-bench-")), BubblewrapSandbox()
    try:
        yield folder, sandbox
    finally:
        sandbox.close()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _volume(sandbox: BubblewrapSandbox) -> Iterator[Volume]:
    volume = sandbox.volumes.create(LIMITS)
    try:
        yield volume
    finally:
        sandbox.volumes.destroy(volume)
