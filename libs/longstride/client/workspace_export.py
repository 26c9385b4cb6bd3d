"""A state of a workspace as a folder or an archive. Nothing is written, and no link points, outside of it."""

import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from longstride.client.errors import UsageProblem
from longstride.client.step_state import StepState, readable
from longstride.sandbox.base import Volume
from longstride.sandbox.contents import Contents
from longstride.sandbox.manifest import FileEntry, Manifest
from longstride.sandbox.restore import restore
from longstride.storage.zstd import compressing

ARCHIVES = (".tar.zst", ".tar")


def export(state: StepState, target: Path) -> list[str]:
    """Write the state to ``target``: a tar archive when its name ends in ``.tar.zst`` or ``.tar``, else a new folder.

    Returns:
        The links that are left out because they lead outside.

    Raises:
        UsageProblem: the target exists already, or cannot be written.
    """
    kept, outside = within(state.snapshot.manifest)
    narrowed = replace(state, snapshot=replace(state.snapshot, manifest=kept))
    with readable(), _told(target):
        if target.name.endswith(ARCHIVES):
            with target.open("xb") as file, _whole(target):
                _archive(narrowed, file, compressed=target.name.endswith(".zst"))
        else:
            target.mkdir(parents=True, mode=0o700)
            with _whole(target):
                restore(narrowed.snapshot, narrowed.store, Volume(target, None, bounded=False, honest_times=True))
                target.chmod(0o755)
    return outside


def within(manifest: Manifest) -> tuple[Manifest, list[str]]:
    """The manifest without the links that could lead outside, and those."""
    outside = [path for path, target in manifest.links.items() if leads_outside(path, target)]
    links = {path: target for path, target in manifest.links.items() if path not in outside}
    return replace(manifest, links=links), sorted(outside)


def leads_outside(path: str, target: str) -> bool:
    """Whether a link can lead out of the folder that it lies in somewhere.

    ``..`` is counted at the start of a target alone, where it leaves real directories. After a name, which may be a link
    itself, nobody knows what it leaves: such a target counts as leading outside.
    """
    parts = PurePosixPath(target).parts
    ups = next((n for n, part in enumerate(parts) if part != ".."), len(parts))
    return target.startswith("/") or ups > path.count("/") or ".." in parts[ups:]


@contextmanager
def _told(target: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise UsageProblem(f"{str(target)!r} exists already: name a new folder or file") from error
    except OSError as error:
        raise UsageProblem(f"{str(target)!r} cannot be written: {error.strerror}") from error


@contextmanager
def _whole(target: Path) -> Iterator[None]:
    """Nothing is left of what could not be written to its end."""
    try:
        yield
    except BaseException:
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        raise


def _archive(state: StepState, file: BinaryIO, *, compressed: bool) -> None:
    stream = compressing(file) if compressed else file
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for member, data in _members(state):
            archive.addfile(member, data)
    if compressed:
        stream.close()


def _members(state: StepState) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Directories, then files pack by pack, then links. Owners are nobody's, so that equal states are equal archives."""
    manifest, contents = state.snapshot.manifest, Contents(state.store, state.snapshot)
    for path, mode in sorted(manifest.dirs.items()):
        yield _member(path, tarfile.DIRTYPE, mode=mode), None
    for path, entry in _by_place(state, manifest):
        member = _member(path, tarfile.REGTYPE, mode=entry.mode, size=entry.size, mtime=entry.mtime_ns / 1e9)
        yield member, BytesIO(contents.read(entry.sha256))
    for path, target in sorted(manifest.links.items()):
        yield _member(path, tarfile.SYMTYPE, linkname=target), None


def _by_place(state: StepState, manifest: Manifest) -> list[tuple[str, FileEntry]]:
    """Files in the order in which their packs are named, so that each pack is read about once."""
    order = {held.sha256: number for number, pack in enumerate(state.snapshot.packs) for held in pack.holds}
    return sorted(manifest.files.items(), key=lambda item: (order.get(item[1].sha256, -1), item[0]))


def _member(path: str, kind: bytes, **fields: object) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.type = kind
    for name, value in fields.items():
        setattr(member, name, value)
    return member
