"""Packs: the contents of files, one after the other in one compressed object.

A content is known by the hash of its own bytes, wherever it lies. Small files share packs, because an object store takes
milliseconds for each object; a large file has one to itself.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final, Literal, NamedTuple

from longstride.contracts.artifact import ArtifactRef
from longstride.sandbox.content import ContentStore
from longstride.sandbox.errors import SandboxFailed, WorkspaceCorrupt
from longstride.storage.zstd import compress, decompress

PACK: Final = "pack"
BLOB: Final = "blob"
"""Kinds of artifact. A blob is one file's bytes as they are: version 1 of the format wrote those."""
PACK_BYTES = 8 << 20
"""Contents that share a pack, together. A reader of one small file reads and holds this much."""
LARGE = 2 << 20
"""Bytes from which a file has a pack to itself, so that the next change of its neighbours does not carry it along."""


class Held(NamedTuple):
    """A content in a pack."""

    sha256: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Pack:
    """One stored object, and which of its contents are still wanted."""

    kind: Literal["pack", "blob"]
    sha256: str
    """Of the object as it is stored."""
    size: int
    """Bytes stored."""
    unpacked: int
    """Bytes of all its contents, the unwanted ones included."""
    holds: tuple[Held, ...]

    @property
    def sparse(self) -> bool:
        """Whether a reader gets little for reading it: few contents, or mostly unwanted ones."""
        return self.unpacked < LARGE or 2 * sum(held.size for held in self.holds) < self.unpacked

    def ref(self, session: str) -> ArtifactRef:
        """Where it lies: in the session of the snapshot that names it."""
        return ArtifactRef(key=f"{session}/{self.kind}/{self.sha256}", sha256=self.sha256, size=self.size)

    def only(self, wanted: Collection[str]) -> "Pack":
        """The same object, for the sake of these contents alone."""
        holds = tuple(held for held in self.holds if held.sha256 in wanted)
        return self if len(holds) == len(self.holds) else replace(self, holds=holds)

    def read(self, store: ContentStore, session: str) -> bytes:
        """All its contents; cut out what is wanted by ``holds``.

        Raises:
            WorkspaceCorrupt: it is not such an object.
        """
        data = store.get(self.ref(session))
        try:
            unpacked = data if self.kind == BLOB else decompress(data, self.unpacked)
        except ValueError as error:
            raise WorkspaceCorrupt(f"{self.ref(session).key}: {error}") from error
        if len(unpacked) != self.unpacked:
            raise WorkspaceCorrupt(f"{self.ref(session).key} unpacks to {len(unpacked)} bytes, not {self.unpacked}")
        return unpacked


def groups(sizes: Iterable[tuple[str, int]]) -> Iterator[list[str]]:
    """Which contents share a pack: names and sizes in, in an order that only the state determines."""
    waiting: list[str] = []
    held = 0
    for name, size in sizes:
        if size >= LARGE:
            yield [name]
            continue
        if held + size > PACK_BYTES:
            yield waiting
            waiting, held = [], 0
        waiting.append(name)
        held += size
    if waiting:
        yield waiting


def write(store: ContentStore, session: str, contents: Mapping[str, Callable[[], bytes]]) -> Pack:
    """Store one pack of these contents, each named by its hash.

    Raises:
        SandboxFailed: a content does not hash to its name: somebody wrote the file meanwhile.
    """
    holds, parts, offset = [], [], 0
    for digest, read in contents.items():
        data = read()
        if sha256(data).hexdigest() != digest:
            raise SandboxFailed("a file changed while the workspace was being collected")
        holds.append(Held(digest, offset, len(data)))
        parts.append(data)
        offset += len(data)
    ref = store.put(compress(b"".join(parts)), session=session, kind=PACK, media_type="application/zstd")
    return Pack(PACK, ref.sha256, ref.size, offset, tuple(holds))
