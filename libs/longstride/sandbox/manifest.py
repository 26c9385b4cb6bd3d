"""A workspace's manifest: what it holds, each file's content by its hash. Equal states have equal bytes."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from longstride.contracts.artifact import ArtifactRef
from longstride.sandbox.errors import WorkspaceCorrupt

VERSION = 1
MANIFEST, BLOB = "workspace", "blob"
"""Kinds of artifact: ``<session>/workspace/<sha256>`` and ``<session>/blob/<sha256>``."""
MEDIA_TYPE = "application/vnd.longstride.workspace+json"


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

    def encode(self) -> bytes:
        """JSON with sorted keys."""
        body = {
            "version": VERSION,
            "files": {
                path: {"mode": e.mode, "size": e.size, "mtime_ns": e.mtime_ns, "sha256": e.sha256}
                for path, e in self.files.items()
            },
            "links": dict(self.links),
            "dirs": dict(self.dirs),
        }
        return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def decode(data: bytes) -> Manifest:
    """Parse and check a stored manifest.

    Raises:
        WorkspaceCorrupt: not JSON, another version, or a path that leads outside.
    """
    try:
        body = json.loads(data)
        if body["version"] != VERSION:
            raise WorkspaceCorrupt(f"workspace manifest of version {body['version']!r}; this build reads {VERSION}")
        manifest = Manifest(
            {_inside(path): FileEntry(**entry) for path, entry in body["files"].items()},
            {_inside(path): str(target) for path, target in body["links"].items()},
            {_inside(path): int(mode) for path, mode in body["dirs"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WorkspaceCorrupt(f"not a workspace manifest: {type(error).__name__}: {error}") from error
    return manifest


def blob_ref(manifest: ArtifactRef, entry: FileEntry) -> ArtifactRef:
    """A file's content lies in the session of its manifest."""
    return ArtifactRef(key=f"{session_of(manifest)}/{BLOB}/{entry.sha256}", sha256=entry.sha256, size=entry.size)


def contents(manifest: Manifest, ref: ArtifactRef) -> list[ArtifactRef]:
    """The objects that are reached only through a manifest: a collector of orphans must keep them."""
    return list({entry.sha256: blob_ref(ref, entry) for entry in manifest.files.values()}.values())


def session_of(ref: ArtifactRef) -> str:
    """``<session>/<kind>/<sha256>`` → session."""
    return ref.key.rsplit("/", 2)[0]


def missing_parents(paths: Iterable[str], dirs: Iterable[str]) -> list[str]:
    """Directories that paths need and nobody listed, parents first."""
    have = set(dirs)
    need = {str(parent) for path in paths for parent in PurePosixPath(path).parents} - have - {"."}
    return sorted(need)


def _inside(path: Any) -> str:
    parts = str(path).split("/")
    if not isinstance(path, str) or "\x00" in path or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{path!r} does not name something inside the workspace")
    return path
