"""Laying a snapshot, or a task's inputs, into an empty volume."""

# Names are whatever bytes an agent chose, reached through directory descriptors: pathlib knows neither.
# ruff: noqa: PTH101, PTH102, PTH118, PTH211

import errno
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import PurePosixPath

from longstride.contracts.v1.input_file import InputFile
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import Owner, Volume
from longstride.sandbox.collect import Collected
from longstride.sandbox.content import ContentStore
from longstride.sandbox.errors import InputUnusable, WorkspaceCorrupt
from longstride.sandbox.in_parallel import in_parallel
from longstride.sandbox.manifest import Manifest, missing_parents
from longstride.sandbox.pack import Pack
from longstride.sandbox.seen import Seen
from longstride.sandbox.snapshot import Snapshot
from longstride.storage.errors import ArtifactCorrupt, ArtifactMissing

MEBIBYTE = 1 << 20
INPUT_TIME_NS = 1_577_836_800 * 10**9
"""2020-01-01: inputs are older than whatever is made from them, and the same for every attempt."""


def restore(snapshot: Snapshot, store: ContentStore, volume: Volume) -> Collected:
    """Make an empty volume what the snapshot says; returns what a collection would find there.

    Directories first and links last, so that nothing is ever written through a link.

    Raises:
        WorkspaceCorrupt: a content is nowhere.
    """
    manifest, paths = snapshot.manifest, _paths(snapshot.manifest)
    packs = _needed(snapshot, set(paths))
    for path in sorted(manifest.dirs):
        os.mkdir(_at(volume, path), 0o700)
        _own(volume, path)
    laid = in_parallel(lambda pack: _lay(snapshot, pack, paths, store, volume), packs)
    for path, target in sorted(manifest.links.items()):
        os.symlink(os.fsencode(target), _at(volume, path))
        _own(volume, path)
    for path, mode in sorted(manifest.dirs.items(), reverse=True):
        os.chmod(_at(volume, path), mode)
    return _known(manifest, {path: status for statuses in laid for path, status in statuses.items()}, volume)


def _known(manifest: Manifest, statuses: Mapping[str, os.stat_result], volume: Volume) -> Collected:
    now = time.time_ns()
    return Collected(
        dict(manifest.files),
        dict(manifest.links),
        dict(manifest.dirs),
        {path: Seen(found.st_ino, found.st_ctime_ns, now, manifest.files[path]) for path, found in statuses.items()},
        {path: os.lstat(_at(volume, path)).st_ino for path in manifest.dirs},
        count=manifest.count,
        bytes=manifest.size,
    )


def _paths(manifest: Manifest) -> dict[str, list[str]]:
    """Content → the files that have it."""
    paths: dict[str, list[str]] = {}
    for path, entry in manifest.files.items():
        paths.setdefault(entry.sha256, []).append(path)
    return paths


def _needed(snapshot: Snapshot, contents: set[str]) -> list[Pack]:
    """The packs to read, each narrowed to what it is read for."""
    needed = []
    for pack in snapshot.packs:
        narrowed = pack.only(contents)
        contents -= {held.sha256 for held in narrowed.holds}
        needed += [narrowed] if narrowed.holds else []
    if contents:
        raise WorkspaceCorrupt(f"{snapshot.ref.key} names no pack that holds {min(contents)}")
    return needed


def _lay(
    snapshot: Snapshot, pack: Pack, paths: Mapping[str, list[str]], store: ContentStore, volume: Volume
) -> dict[str, os.stat_result]:
    data = memoryview(pack.read(store, snapshot.session))
    laid = {}
    for held in pack.holds:
        for path in paths[held.sha256]:
            entry = snapshot.manifest.files[path]
            content = data[held.offset : held.offset + held.size]
            laid[path] = _write(_at(volume, path), content, entry.mode, entry.mtime_ns, volume.owner)
    return laid


def lay_inputs(
    inputs: Sequence[InputFile], volume: Volume, limits: SandboxLimits, fetch: Callable[[InputFile], bytes]
) -> None:
    """Put a task's inputs into its empty volume.

    Raises:
        InputUnusable: missing, altered, too large, too many, or two that cannot both be there.
    """
    _check_sizes(inputs, limits)
    for folder in missing_parents((file.path for file in inputs), ()):
        _make_input(folder, lambda path: os.mkdir(path, 0o755), volume)
        _own(volume, folder)
    for file in inputs:
        data = _fetched(file, fetch)
        mode = 0o755 if file.executable else 0o644
        write = partial(_write, data=data, mode=mode, mtime_ns=INPUT_TIME_NS, owner=volume.owner)
        _make_input(file.path, write, volume)


def _check_sizes(inputs: Iterable[InputFile], limits: SandboxLimits) -> None:
    total = 0
    for file in inputs:
        size = file.ref.size if file.ref else len((file.text or "").encode(errors="surrogatepass"))
        total += size
        if total > limits.disk_mb * MEBIBYTE:
            raise InputUnusable(
                f"input {file.path!r} ({size} bytes) does not fit: the workspace may hold disk_mb={limits.disk_mb}"
            )


def _fetched(file: InputFile, fetch: Callable[[InputFile], bytes]) -> bytes:
    try:
        return fetch(file)
    except ArtifactMissing as error:
        raise InputUnusable(f"input {file.path!r} is not in the artifact store: {error}") from error
    except ArtifactCorrupt as error:
        raise InputUnusable(f"input {file.path!r} is not what was stored: {error}") from error


def _make_input(path: str, make: Callable[[bytes], object], volume: Volume) -> None:
    try:
        make(_at(volume, path))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and not volume.bounded:
            raise
        raise InputUnusable(f"input {path!r} cannot be laid into the workspace: {error.strerror}") from error


def _write(path: bytes, data: bytes | memoryview, mode: int, mtime_ns: int, owner: Owner | None) -> os.stat_result:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        while data:
            data = data[file.write(data) :]
        if owner:
            os.fchown(descriptor, owner.uid, owner.gid)
        os.fchmod(descriptor, mode)
        os.utime(descriptor, ns=(mtime_ns, mtime_ns))
        return os.fstat(descriptor)


def _own(volume: Volume, path: str) -> None:
    if volume.owner:
        os.chown(_at(volume, path), volume.owner.uid, volume.owner.gid, follow_symlinks=False)


def _at(volume: Volume, path: str) -> bytes:
    return os.path.join(os.fsencode(volume.path), os.fsencode(str(PurePosixPath(path))))
