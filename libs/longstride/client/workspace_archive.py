"""A state of a workspace as an archive; equal states are equal bytes."""

import gzip
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from io import BytesIO
from typing import IO, BinaryIO

from longstride.client.errors import UsageProblem
from longstride.client.step_state import StepState
from longstride.sandbox.contents import Contents
from longstride.sandbox.manifest import FileEntry, Manifest
from longstride.storage.zstd import compressing

Writer = Callable[[StepState, BinaryIO], None]
OTHERS = (".7z", ".rar", ".bz2", ".tbz2", ".tbz", ".xz", ".txz", ".lz4", ".gz", ".zst")
"""Names of archives that are not made: whoever names one does not want a folder."""
FIRST, LAST = (
    int(at.timestamp()) for at in (datetime(1980, 1, 1, tzinfo=UTC), datetime(2107, 12, 31, 23, 59, 58, tzinfo=UTC))
)
"""Seconds that zip can tell (its times are MS-DOS's)."""


def writer_of(name: str) -> Writer | None:
    """What writes an archive of this name; ``None``: it is no archive's.

    Raises:
        UsageProblem: it is one of a kind that is not made.
    """
    lower = name.lower()
    found = next((write for ending, write in FORMATS.items() if lower.endswith(ending)), None)
    if found is None and lower.endswith(OTHERS):
        raise UsageProblem(f"{name!r}: archives are made as {', '.join(FORMATS)}; a folder has another name")
    return found


def _tar(state: StepState, file: IO[bytes]) -> None:
    with tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for member, data in _members(state):
            archive.addfile(member, data)


def _tar_gz(state: StepState, file: BinaryIO) -> None:
    """No time and no name in its head."""
    with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as stream:
        _tar(state, stream)  # type: ignore[arg-type]


def _tar_zst(state: StepState, file: BinaryIO) -> None:
    stream = compressing(file)
    _tar(state, stream)
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


def _zip(state: StepState, file: BinaryIO) -> None:
    """As Info-ZIP makes it on Unix: modes, and links as entries that hold their target."""
    manifest, contents = state.snapshot.manifest, Contents(state.store, state.snapshot)
    _require_text((*manifest.dirs, *manifest.files, *manifest.links, *manifest.links.values()))
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, mode in sorted(manifest.dirs.items()):
            archive.writestr(_entry(f"{path}/", stat.S_IFDIR | mode), b"")
        for path, entry in _by_place(state, manifest):
            data = contents.read(entry.sha256)
            archive.writestr(_entry(path, stat.S_IFREG | entry.mode, entry.mtime_ns), data, zipfile.ZIP_DEFLATED)
        for path, target in sorted(manifest.links.items()):
            archive.writestr(_entry(path, stat.S_IFLNK | 0o777), target)


def _require_text(names: tuple[str, ...]) -> None:
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise UsageProblem(f"{name!r} is not UTF-8, which a zip cannot hold: name a .tar.gz instead") from error


def _entry(path: str, mode: int, mtime_ns: int = 0) -> zipfile.ZipInfo:
    """Times are UTC; those that zip cannot tell are its first or last, and an agent may set some that no calendar tells."""
    seconds = min(max(mtime_ns // 10**9, FIRST), LAST)
    found = zipfile.ZipInfo(path, datetime.fromtimestamp(seconds, UTC).timetuple()[:6])
    found.create_system, found.external_attr = 3, mode << 16
    return found


FORMATS: Mapping[str, Writer] = {
    ".zip": _zip,
    ".tar": _tar,
    ".tar.gz": _tar_gz,
    ".tgz": _tar_gz,
    ".tar.zst": _tar_zst,
}
"""Ending → what writes it."""
