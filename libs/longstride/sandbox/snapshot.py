"""Snapshots: a workspace's state in the artifact store, as what changed since the state before.

An object of kind ``workspace`` is compressed JSON. A whole one says all there is; a delta names the whole one that it ends
up at and every delta between (its *chain*), and says what changed since the last of them. Both name the packs that hold
contents. A chain ends when it is long, or weighs more than what it starts from: so a reader reads a bounded number of
objects, and a writer writes what changed.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from longstride.contracts.artifact import ArtifactRef
from longstride.sandbox.content import ContentStore
from longstride.sandbox.errors import WorkspaceCorrupt
from longstride.sandbox.in_parallel import in_parallel
from longstride.sandbox.manifest import Changes, Entry, FileEntry, Manifest, decode_first_version, inside
from longstride.sandbox.pack import BLOB, PACK, Held, Pack
from longstride.storage.zstd import MAGIC, compress, decompress

VERSION = 2
SNAPSHOT = "workspace"
MEDIA_TYPE = "application/vnd.longstride.workspace+zstd"
MAX_CHAIN = 48
"""Deltas in a row."""
MIN_WEIGHT = 32 << 10
"""Bytes that a chain may weigh whatever its whole snapshot weighs: small ones are not worth the counting."""
MAX_SPARSE = 32
"""Sparse packs that a whole snapshot may name; where there are more, they are packed anew."""
MAX_UNPACKED = 1 << 30
"""Bytes of JSON; a million entries have a quarter of it."""


@dataclass(frozen=True, slots=True)
class Delta:
    """One step of a chain."""

    ref: ArtifactRef
    """The state after it."""
    undo: Changes
    """What lay at the paths that it changed."""
    packs: tuple[Pack, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state, as it was read or written."""

    manifest: Manifest
    whole: ArtifactRef
    """The object that its chain starts from."""
    whole_packs: tuple[Pack, ...]
    deltas: tuple[Delta, ...] = ()
    first_version: bool = False

    @property
    def ref(self) -> ArtifactRef:
        """The state's reference."""
        return self.deltas[-1].ref if self.deltas else self.whole

    @property
    def session(self) -> str:
        """The session that its objects lie in."""
        return session_of(self.whole)

    @property
    def packs(self) -> list[Pack]:
        """Every pack that may hold contents of it."""
        return [*self.whole_packs, *(pack for delta in self.deltas for pack in delta.packs)]

    @property
    def objects(self) -> list[ArtifactRef]:
        """The objects that are reached only through this one: a collector of orphans must keep them."""
        chain = [self.whole, *(delta.ref for delta in self.deltas)][:-1]
        return [*chain, *(pack.ref(self.session) for pack in self.packs)]

    @property
    def ends_chain(self) -> bool:
        """Whether the next snapshot is to be a whole one."""
        weight = sum(delta.ref.size for delta in self.deltas)
        return self.first_version or len(self.deltas) >= MAX_CHAIN or weight > max(self.whole.size, MIN_WEIGHT)

    def contents(self) -> set[str]:
        """The hashes of the contents that are stored."""
        return {held.sha256 for pack in self.packs for held in pack.holds}

    def seen_before(self, manifest: Manifest, changes: Changes) -> "Snapshot | None":
        """The state of its chain that equals ``manifest``, the newest first. ``changes`` lead from this one to it."""
        if not changes:
            return self
        was: dict[str, Entry | None] = {}
        for kept in range(len(self.deltas) - 1, -1, -1):
            was.update(self.deltas[kept].undo)
            if changes.keys() <= was.keys() and all(manifest.get(path) == entry for path, entry in was.items()):
                return Snapshot(manifest, self.whole, self.whole_packs, self.deltas[:kept], self.first_version)
        return None

    def kept_packs(self, manifest: Manifest) -> tuple[Pack, ...]:
        """The packs that a whole snapshot of ``manifest`` goes on with. Where many are sparse, their contents are packed
        anew, or a reader would read one object for each step that there ever was."""
        wanted = {entry.sha256 for entry in manifest.files.values()}
        live = [narrowed for pack in self.packs if (narrowed := pack.only(wanted)).holds]
        dense = [pack for pack in live if not pack.sparse]
        return tuple(dense if len(live) - len(dense) > MAX_SPARSE else live)


def load(store: ContentStore, ref: ArtifactRef) -> Snapshot:
    """Read a state.

    Raises:
        WorkspaceCorrupt: ``ref`` is no snapshot that this build reads.
        ArtifactMissing, ArtifactCorrupt: it, or one of its chain, is gone.
    """
    data = store.get(ref)
    if not data.startswith(MAGIC):
        return _first_version(decode_first_version(data), ref)
    last = _decode(data)
    chain = [_ref(session_of(ref), *link) for link in last.chain]
    bodies = [*map(_decode, in_parallel(store.get, chain)), last]
    if bodies[0].chain:
        raise WorkspaceCorrupt(f"{ref.key}: its chain does not start with a whole snapshot")
    return _replayed([*chain, ref], bodies)


def write_whole(store: ContentStore, session: str, manifest: Manifest, packs: Iterable[Pack]) -> Snapshot:
    """Store a state by itself, once its contents are stored: ``packs`` hold all of them."""
    held = tuple(packs)
    ref = _put(store, session, _Body((), Manifest().differing(manifest), held))
    return Snapshot(manifest, ref, held)


def write_delta(
    store: ContentStore, before: Snapshot, manifest: Manifest, changes: Changes, packs: Iterable[Pack]
) -> Snapshot:
    """Store a state as ``changes`` of ``before``, once its contents are stored: ``packs`` hold the new ones."""
    assert not before.ends_chain, "this state is no start of a delta"
    new, undo = tuple(packs), {path: before.manifest.get(path) for path in changes}
    chain = tuple((ref.sha256, ref.size) for ref in (before.whole, *(delta.ref for delta in before.deltas)))
    ref = _put(store, before.session, _Body(chain, changes, new))
    return Snapshot(manifest, before.whole, before.whole_packs, (*before.deltas, Delta(ref, undo, new)))


def session_of(ref: ArtifactRef) -> str:
    """``<session>/<kind>/<sha256>`` → session."""
    return ref.key.rsplit("/", 2)[0]


@dataclass(frozen=True, slots=True)
class _Body:
    """What one object says."""

    chain: tuple[tuple[str, int], ...]
    """(SHA-256, bytes) of the whole snapshot and the deltas before this one; empty: this one is whole."""
    changes: Changes
    packs: tuple[Pack, ...]

    def encode(self) -> bytes:
        body = {
            "version": VERSION,
            "chain": self.chain,
            "changes": {path: _plain(entry) for path, entry in self.changes.items()},
            "packs": [[p.kind, p.sha256, p.size, p.unpacked, p.holds] for p in self.packs],
        }
        return compress(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())


def _put(store: ContentStore, session: str, body: _Body) -> ArtifactRef:
    return store.put(body.encode(), session=session, kind=SNAPSHOT, media_type=MEDIA_TYPE)


def _decode(data: bytes) -> _Body:
    try:
        body = json.loads(decompress(data, MAX_UNPACKED))
        if body["version"] != VERSION:
            raise WorkspaceCorrupt(
                f"workspace snapshot of version {body['version']!r}; this build reads 1 and {VERSION}"
            )
        return _Body(
            tuple((str(digest), int(size)) for digest, size in body["chain"]),
            {inside(path): _entry(plain) for path, plain in body["changes"].items()},
            tuple(_pack(*plain) for plain in body["packs"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WorkspaceCorrupt(f"not a workspace snapshot: {type(error).__name__}: {error}") from error


def _plain(entry: Entry | None) -> object:
    return (entry.mode, entry.size, entry.mtime_ns, entry.sha256) if isinstance(entry, FileEntry) else entry


def _entry(plain: Any) -> Entry | None:
    if isinstance(plain, list):
        mode, size, mtime_ns, digest = plain
        return FileEntry(int(mode), int(size), int(mtime_ns), str(digest))
    if plain is None or isinstance(plain, str | int):
        return plain
    raise ValueError(f"{plain!r} is neither a file, a link, a directory nor nothing")


def _pack(kind: Any, digest: str, size: int, unpacked: int, holds: list[Any]) -> Pack:
    if kind not in (PACK, BLOB):
        raise ValueError(f"no kind of pack: {kind!r}")
    held = tuple(Held(str(name), int(offset), int(length)) for name, offset, length in holds)
    if any(not 0 <= each.offset <= each.offset + each.size <= unpacked for each in held):
        raise ValueError(f"pack {digest} holds something beyond its end")
    return Pack(kind, str(digest), int(size), int(unpacked), held)


def _replayed(refs: list[ArtifactRef], bodies: list[_Body]) -> Snapshot:
    manifests = list(accumulate(bodies, lambda state, body: state.changed(body.changes), initial=Manifest()))[1:]
    deltas = tuple(
        Delta(ref, {path: before.get(path) for path in body.changes}, body.packs)
        for ref, before, body in zip(refs[1:], manifests, bodies[1:], strict=False)
    )
    return Snapshot(manifests[-1], refs[0], bodies[0].packs, deltas)


def _first_version(manifest: Manifest, ref: ArtifactRef) -> Snapshot:
    sizes = {entry.sha256: entry.size for entry in manifest.files.values()}
    packs = (Pack(BLOB, name, size, size, (Held(name, 0, size),)) for name, size in sizes.items())
    return Snapshot(manifest, ref, tuple(packs), first_version=True)


def _ref(session: str, digest: str, size: int) -> ArtifactRef:
    return ArtifactRef(key=f"{session}/{SNAPSHOT}/{digest}", sha256=digest, size=size, media_type=MEDIA_TYPE)
