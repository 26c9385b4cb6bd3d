"""A workspace's manifest: what it holds, each file's content by its hash; and what differs between two of them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from longstride.sandbox.errors import WorkspaceCorrupt

FIRST_VERSION = 1
"""Whole manifests as JSON, each file's content in an object of its own. No longer written, read for ever."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A regular file."""

    mode: int
    """Permission bits, without set-uid, set-gid and sticky."""
    size: int
    """Bytes."""
    mtime_ns: int
    """When it was last written; build tools compare these."""
    sha256: str


Entry = FileEntry | str | int
"""What lies at a path: a file, a link's target, or a directory's permission bits."""
Changes = Mapping[str, Entry | None]
"""Paths that differ, with what lies there afterwards; ``None`` is nothing."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Paths are relative, with ``/``; names that are not UTF-8 are kept as surrogates (``os.fsdecode``)."""

    files: Mapping[str, FileEntry] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    """Symbolic links and where they point. They are recorded and restored as they are, and never followed."""
    dirs: Mapping[str, int] = field(default_factory=dict)
    """Directories and their permission bits."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files.values())

    @property
    def count(self) -> int:
        """Inodes."""
        return len(self.files) + len(self.links) + len(self.dirs)

    def get(self, path: str) -> Entry | None:
        """What lies there."""
        found: Entry | None = self.files.get(path)
        if found is None:
            found = self.links.get(path)
        return self.dirs.get(path) if found is None else found

    def differing(self, other: "Manifest") -> Changes:
        """What leads from this one to ``other``."""
        changed: dict[str, Entry | None] = {}
        for mine, others in ((self.files, other.files), (self.links, other.links), (self.dirs, other.dirs)):
            changed.update((path, None) for path in mine.keys() - others.keys())
        for mine, others in ((self.files, other.files), (self.links, other.links), (self.dirs, other.dirs)):
            changed.update(_replaced(mine, others))
        return changed

    def changed(self, changes: Changes) -> "Manifest":
        """This one with ``changes``."""
        files, links, dirs = dict(self.files), dict(self.links), dict(self.dirs)
        for path, entry in changes.items():
            for kind in (files, links, dirs):
                kind.pop(path, None)
            if isinstance(entry, FileEntry):
                files[path] = entry
            elif isinstance(entry, str):
                links[path] = entry
            elif entry is not None:
                dirs[path] = entry
        return Manifest(files, links, dirs)


def _replaced(mine: Mapping[str, Any], others: Mapping[str, Any]) -> Iterable[tuple[str, Entry]]:
    """Most entries of a large workspace are the very same object, which is quickly told."""
    for path, entry in others.items():
        before = mine.get(path)
        if before is not entry and before != entry:
            yield path, entry


def decode_first_version(data: bytes) -> Manifest:
    """Parse and check a manifest of version 1.

    Raises:
        WorkspaceCorrupt: not JSON, another version, or a path that leads outside.
    """
    try:
        body = json.loads(data)
        if body["version"] != FIRST_VERSION:
            raise WorkspaceCorrupt(f"workspace manifest of version {body['version']!r}, which this build does not read")
        return Manifest(
            {inside(path): FileEntry(**entry) for path, entry in body["files"].items()},
            {inside(path): str(target) for path, target in body["links"].items()},
            {inside(path): int(mode) for path, mode in body["dirs"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WorkspaceCorrupt(f"not a workspace manifest: {type(error).__name__}: {error}") from error


def missing_parents(paths: Iterable[str], dirs: Iterable[str]) -> list[str]:
    """Directories that paths need and nobody listed, parents first."""
    have = set(dirs)
    need = {str(parent) for path in paths for parent in PurePosixPath(path).parents} - have - {"."}
    return sorted(need)


def inside(path: Any) -> str:
    """A path of a manifest, checked.

    Raises:
        ValueError: it could lead out of the workspace.
    """
    parts = str(path).split("/")
    if not isinstance(path, str) or "\x00" in path or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{path!r} does not name something inside the workspace")
    return path
