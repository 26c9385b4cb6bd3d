"""Reading single files of a snapshot, without laying it out."""

from longstride.sandbox.content import ContentStore
from longstride.sandbox.errors import WorkspaceCorrupt
from longstride.sandbox.pack import Held, Pack
from longstride.sandbox.snapshot import Snapshot

KEPT = 4
"""Packs held unpacked: neighbours tend to lie in one."""


class Contents:
    """The contents of one snapshot's files."""

    def __init__(self, store: ContentStore, snapshot: Snapshot) -> None:
        self._store = store
        self._snapshot = snapshot
        self._places: dict[str, tuple[Pack, Held]] = {
            held.sha256: (pack, held) for pack in snapshot.packs for held in pack.holds
        }
        self._unpacked: dict[str, bytes] = {}

    def read(self, sha256: str) -> bytes:
        """A content by its hash.

        Raises:
            WorkspaceCorrupt: the snapshot has no such content.
            ArtifactMissing, ArtifactCorrupt: its pack is gone.
        """
        if sha256 not in self._places:
            raise WorkspaceCorrupt(f"{self._snapshot.ref.key} names no pack that holds {sha256}")
        pack, held = self._places[sha256]
        data = self._unpack(pack)
        return data[held.offset : held.offset + held.size]

    def _unpack(self, pack: Pack) -> bytes:
        if pack.sha256 not in self._unpacked:
            while len(self._unpacked) >= KEPT:
                self._unpacked.pop(next(iter(self._unpacked)))
            self._unpacked[pack.sha256] = pack.read(self._store, self._snapshot.session)
        return self._unpacked[pack.sha256]
