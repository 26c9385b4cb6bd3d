"""Snapshots as deltas: bounded chains, deterministic objects, and the same tree back after any edits."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox import pack, snapshot
from longstride.sandbox.errors import WorkspaceCorrupt
from longstride.sandbox.volumes import DirectoryVolumes
from longstride.sandbox.workspace import Workspaces
from longstride.storage.artifacts import ArtifactStore
from longstride.storage.errors import ArtifactMissing
from longstride.storage.memory import MemoryArtifacts
from longstride.storage.zstd import compress
from tests.support.edits import EDITS, apply
from tests.support.trees import tree

LIMITS = SandboxLimits(disk_mb=64, files=2000)


class Desk:
    """One task's workspace, step by step, on one executor."""

    def __init__(self, artifacts: ArtifactStore, folder: Path, task: str = "task") -> None:
        self.artifacts = artifacts
        self.workspaces = Workspaces(artifacts, DirectoryVolumes(folder))
        self.task = task
        self.ref: ArtifactRef | None = None

    def step(self, edit: Callable[[Path], object], session: str = "s") -> ArtifactRef:
        with self.workspaces.open(self.task, self.ref, limits=LIMITS) as workspace:
            edit(workspace.volume.path)
            self.ref = workspace.commit(session)
        return self.ref

    def restart(self) -> None:
        """As after a crash: nothing is laid out any more."""
        self.workspaces.close()

    def look(self, ref: ArtifactRef | None = None) -> dict[str, object]:
        self.restart()
        with self.workspaces.open(self.task, ref or self.ref, limits=LIMITS) as workspace:
            return tree(workspace.volume.path)

    def loaded(self, ref: ArtifactRef | None = None) -> snapshot.Snapshot:
        found = ref or self.ref
        assert found is not None
        return snapshot.load(self.artifacts, found)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(MemoryArtifacts(), tmp_path / "volumes")
    yield made
    made.restart()


def put(name: str, text: str, mtime_ns: int = 1_700_000_000_000_000_000) -> Callable[[Path], None]:
    def edit(root: Path) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
        os.utime(root / name, ns=(mtime_ns, mtime_ns))

    return edit


def many(count: int, text: str = "") -> Callable[[Path], None]:
    return lambda root: [put(f"d{n % 7}/f{n}", f"{text}{n}\n" * 20)(root) for n in range(count)]


def test_a_step_writes_what_changed_and_names_where_it_starts(desk: Desk) -> None:
    first = desk.step(many(1000))
    before = {stored.key: stored.size for stored in desk.artifacts.list()}
    second = desk.step(put("d1/f1", "changed"))
    new = [stored for stored in desk.artifacts.list() if stored.key not in before]
    assert len(new) == 2
    assert sum(stored.size for stored in new) < 400 < sum(before.values()) / 10
    loaded = desk.loaded()
    assert (loaded.whole, loaded.ref, len(loaded.deltas)) == (first, second, 1)
    assert list(loaded.deltas[0].undo) == ["d1/f1"]


def test_many_small_files_share_a_pack_and_a_large_one_has_its_own(desk: Desk) -> None:
    desk.step(put("seed", "x"))
    before = set(desk.artifacts.list())
    desk.step(many(500))
    assert len({stored.key for stored in desk.artifacts.list()} - {stored.key for stored in before}) == 2
    desk.step(lambda root: (root / "large").write_bytes(os.urandom(3 << 20)))
    assert [len(each.holds) for each in desk.loaded().packs] == [1, 500, 1]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([1, 2, 3], [[0, 1, 2]]),
        ([4, 4, 4], [[0, 1], [2]]),
        ([1, 5, 2, 9, 3], [[1], [3], [0, 2, 4]]),
    ],
)
def test_contents_are_grouped_by_size_alone(sizes: list[int], expected: list[list[int]], monkeypatch) -> None:
    monkeypatch.setattr(pack, "PACK_BYTES", 8)
    monkeypatch.setattr(pack, "LARGE", 5)
    found = list(pack.groups((str(number), size) for number, size in enumerate(sizes)))
    assert found == [[str(number) for number in group] for group in expected]


def test_a_chain_is_bounded_and_so_is_what_a_reader_reads(desk: Desk) -> None:
    desk.step(many(50))
    lengths = []
    for number in range(150):
        desk.step(put(f"new{number % 60}", f"step {number}"))
        lengths.append(len(desk.loaded().deltas))
    assert max(lengths) <= snapshot.MAX_CHAIN
    assert lengths.count(0) >= 2
    assert len(desk.loaded().objects) <= snapshot.MAX_CHAIN * 2 + snapshot.MAX_SPARSE + 2
    assert (len(desk.look()), desk.look()["new29"]) == (50 + 7 + 60, desk.look()["new29"])


def test_a_chain_that_outweighs_its_start_ends(desk: Desk, monkeypatch) -> None:
    monkeypatch.setattr(snapshot, "MIN_WEIGHT", 0)
    desk.step(many(100))
    weights = []
    for number in range(6):
        desk.step(many(100, f"{number} "))
        loaded = desk.loaded()
        weights.append(sum(delta.ref.size for delta in loaded.deltas) - loaded.whole.size)
        assert all(delta.ref.size <= 2 * loaded.whole.size for delta in loaded.deltas)
    assert any(weight < 0 for weight in weights[1:])


def test_a_state_that_was_there_before_is_the_same_reference(desk: Desk) -> None:
    first = desk.step(many(40))
    second = desk.step(put("note", "one"))
    third = desk.step(put("note", "two"))
    assert desk.step(put("note", "one")) == second
    assert desk.step(lambda root: (root / "note").unlink()) == first
    desk.restart()
    assert desk.step(put("note", "one")) == second, "from another executor, too"
    assert desk.step(put("note", "two")) == third


def test_two_executors_make_the_same_objects_of_the_same_steps(tmp_path: Path) -> None:
    edits = [many(60), put("a/b", "c"), put("d1/f1", "changed"), lambda root: shutil.rmtree(root / "d2")]
    stores = []
    for number in range(2):
        desk = Desk(MemoryArtifacts(), tmp_path / str(number), task=f"task {number}")
        for edit in edits:
            desk.step(edit)
            if number:
                desk.restart()
        stores.append({stored.key: stored.size for stored in desk.artifacts.list()})
        desk.restart()
    assert stores[0] == stores[1]


def test_every_step_of_a_chain_can_be_opened(desk: Desk) -> None:
    seen = []
    for number in range(12):
        ref = desk.step(put(f"f{number % 5}", str(number)))
        seen.append((ref, number))
    for ref, number in seen:
        found = desk.look(ref)[f"f{number % 5}"]
        assert isinstance(found, tuple)
        assert found[2] == str(number).encode()


def test_a_fork_into_another_session_needs_nothing_of_the_first(desk: Desk) -> None:
    desk.step(many(30))
    desk.step(put("note", "one"))
    whole = desk.look()
    desk.step(lambda root: None, session="fork")
    for stored in list(desk.artifacts.list("s/")):
        desk.artifacts.delete(stored.key)
    assert desk.look() == whole
    desk.step(put("note", "two"), session="fork")
    assert len(desk.loaded().deltas) == 1


def test_a_state_of_the_first_version_is_read_and_built_upon(desk: Desk) -> None:
    def stored(text: str, mtime: int) -> dict[str, object]:
        desk.artifacts.put(text.encode(), session="s", kind="blob")
        return {"mode": 0o640, "size": len(text), "mtime_ns": mtime, "sha256": sha256(text.encode()).hexdigest()}

    files = {f"d/f{number}": stored(f"text {number}", 10**18 + number) for number in range(40)}
    old = {"version": 1, "files": files, "links": {"l": "d/f1"}, "dirs": {"d": 0o700}}
    desk.ref = desk.artifacts.put(json.dumps(old).encode(), session="s", kind="workspace")
    before = desk.look()
    assert before["d/f7"] == (0o640, 10**18 + 7, b"text 7")
    first = desk.ref
    assert desk.step(lambda root: None) == first
    desk.step(put("d/f8", "new"))
    assert {**desk.look(), "d/f8": None} == {**before, "d/f8": None}
    loaded = desk.loaded()
    assert [each.kind for each in loaded.packs] == ["pack"], "more than a few blobs are packed"
    assert first not in loaded.objects


def test_a_lost_link_of_the_chain_is_the_stores_error(desk: Desk) -> None:
    first = desk.step(many(3))
    desk.step(put("note", "one"))
    desk.restart()
    desk.artifacts.delete(first.key)
    with pytest.raises(ArtifactMissing):
        desk.look()


WHOLE = {"version": 2, "chain": [], "changes": {}, "packs": []}


@pytest.mark.parametrize(
    "body",
    [
        {"version": 3},
        {**WHOLE, "changes": {"../up": 448}},
        {**WHOLE, "changes": {"/etc": 448}},
        {**WHOLE, "changes": {"a": [1, 2]}},
        {**WHOLE, "changes": {"a": {"mode": 1}}},
        {**WHOLE, "changes": {"a": [420, 1, 1, "0" * 64]}},
        {**WHOLE, "packs": [["tarball", "0" * 64, 1, 1, []]]},
        {**WHOLE, "packs": [["pack", "0" * 64, 1, 4, [["0" * 64, 2, 3]]]]},
        {**WHOLE, "packs": [["pack", "0" * 64, 1, 4, [["0" * 64, -1, 3]]]]},
        {},
        [],
    ],
)
def test_a_snapshot_is_checked_before_it_is_believed(desk: Desk, body: object) -> None:
    desk.ref = desk.artifacts.put(compress(json.dumps(body).encode()), session="s", kind="workspace")
    with pytest.raises(WorkspaceCorrupt):
        desk.look()


def test_a_pack_is_not_unpacked_beyond_what_it_is_said_to_hold(desk: Desk) -> None:
    bomb = desk.artifacts.put(compress(bytes(64 << 20)), session="s", kind="pack")
    name = sha256(b"").hexdigest()
    packs = [["pack", bomb.sha256, bomb.size, 10, [[name, 0, 0]]]]
    body = {**WHOLE, "changes": {"a": [420, 0, 1, name]}, "packs": packs}
    desk.ref = desk.artifacts.put(compress(json.dumps(body).encode()), session="s", kind="workspace")
    with pytest.raises(WorkspaceCorrupt, match="67108864 bytes, where at most 10"):
        desk.look()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.lists(EDITS, max_size=6), st.booleans()), min_size=1, max_size=8))
def test_after_any_edits_the_store_gives_the_identical_tree(steps: list[tuple[list[tuple], bool]]) -> None:
    folder = Path(mkdtemp(prefix="longstride-test-"))
    desk = Desk(MemoryArtifacts(), folder)
    try:
        states: list[tuple[ArtifactRef, dict[str, object]]] = []
        for edits, crash in steps:
            seen: dict[str, object] = {}

            def edit(root: Path, edits: list[tuple] = edits, seen: dict[str, object] = seen) -> None:
                for each in edits:
                    apply(root, each)
                seen.update(tree(root))

            states.append((desk.step(edit), seen))
            if crash:
                desk.restart()
        for ref, seen in states:
            assert desk.look(ref) == seen
        refs = [ref for ref, _ in states]
        first = {repr(sorted(seen.items())): ref for ref, seen in reversed(states)}
        if len(desk.loaded().deltas) == len(set(refs)) - 1:
            assert refs == [first[repr(sorted(seen.items()))] for _, seen in states], "equal states, equal references"
    finally:
        desk.restart()
        shutil.rmtree(folder)
