"""Laying a manifest, or a task's inputs, into an empty volume."""

# Names are whatever bytes an agent chose, reached through directory descriptors: pathlib knows neither.
# ruff: noqa: PTH101, PTH102, PTH118, PTH211

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import PurePosixPath
from typing import TypeVar

from longstride.contracts.v1.input_file import InputFile
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import Volume
from longstride.sandbox.errors import InputUnusable
from longstride.sandbox.manifest import Manifest, missing_parents
from longstride.storage.errors import ArtifactCorrupt, ArtifactMissing

MEBIBYTE = 1 << 20
INPUT_TIME_NS = 1_577_836_800 * 10**9
"""2020-01-01: inputs are older than whatever is made from them, and the same for every attempt."""
PARALLEL = 8
"""Object stores answer in milliseconds each; a workspace has many small files."""
T = TypeVar("T")
R = TypeVar("R")


def in_parallel(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Like ``map``, a few at a time; the first error is raised."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(PARALLEL, len(items))) as pool:
        return list(pool.map(work, items))


def restore(manifest: Manifest, volume: Volume, content: Callable[[str], bytes]) -> None:
    """Make an empty volume what the manifest says.

    Directories first and links last, so that nothing is ever written through a link.

    Args:
        manifest: what to make.
        volume: empty.
        content: a file's bytes by its path.
    """
    for path in sorted(manifest.dirs):
        os.mkdir(_at(volume, path), 0o700)
        _own(volume, path)
    in_parallel(lambda path: _restore_file(manifest, volume, path, content), sorted(manifest.files))
    for path, target in sorted(manifest.links.items()):
        os.symlink(os.fsencode(target), _at(volume, path))
        _own(volume, path)
    for path, mode in sorted(manifest.dirs.items(), reverse=True):
        os.chmod(_at(volume, path), mode)


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
    for file in inputs:
        data = _fetched(file, fetch)
        mode = 0o755 if file.executable else 0o644
        _make_input(file.path, partial(_write, data=data, mode=mode, mtime_ns=INPUT_TIME_NS), volume)


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
    _own(volume, path)


def _restore_file(manifest: Manifest, volume: Volume, path: str, content: Callable[[str], bytes]) -> None:
    entry = manifest.files[path]
    _write(_at(volume, path), content(path), entry.mode, entry.mtime_ns)
    _own(volume, path)


def _write(path: bytes, data: bytes, mode: int, mtime_ns: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fchmod(descriptor, mode)
        os.utime(descriptor, ns=(mtime_ns, mtime_ns))


def _own(volume: Volume, path: str) -> None:
    if volume.owner:
        os.chown(_at(volume, path), volume.owner.uid, volume.owner.gid, follow_symlinks=False)


def _at(volume: Volume, path: str) -> bytes:
    return os.path.join(os.fsencode(volume.path), os.fsencode(str(PurePosixPath(path))))
