import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from longstride.storage.errors import ArtifactMissing
from longstride.storage.memory import MemoryArtifacts
from longstride.training.errors import WeightsRefused
from longstride.training.weights import Lineage, Manifest, fetch, open_manifest, publish

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def artifacts() -> MemoryArtifacts:
    return MemoryArtifacts()


@pytest.fixture
def source(tmp_path):
    directory = tmp_path / "source"
    directory.mkdir()
    (directory / "model.safetensors").write_bytes(bytes(range(256)))
    (directory / "config.json").write_text("{}")
    return directory


def published(source, artifacts, **changes):
    fields = {"policy": "builtin", "version": 0, "created_at": NOW, **changes}
    return publish(source, artifacts=artifacts, **fields)


def lineage(ref, version: int) -> Lineage:
    return Lineage(parent=ref, parent_version=version, batch_id="b", batch=ref, task_ids=("t",), recipe={}, metrics={})


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_what_was_published_is_fetched_byte_for_byte(source, artifacts, tmp_path):
    manifest, _ = published(source, artifacts)
    assert contents(fetch(manifest, artifacts, tmp_path / "cache")) == contents(source)
    assert not list((tmp_path / "cache").rglob(".fetching-*"))


def test_publishing_again_is_the_same(source, artifacts):
    first = published(source, artifacts)
    objects = {stored.key for stored in artifacts.list("")}
    assert published(source, artifacts) == first
    assert {stored.key for stored in artifacts.list("")} == objects


def test_a_fetched_directory_is_used_again(source, artifacts, tmp_path):
    manifest, _ = published(source, artifacts)
    first = fetch(manifest, artifacts, tmp_path)
    for stored in list(artifacts.list("")):
        artifacts.delete(stored.key)
    assert fetch(manifest, artifacts, tmp_path) == first


@pytest.mark.parametrize("damage", [b"", b"x" * 256, None])
def test_a_damaged_directory_is_fetched_again(source, artifacts, tmp_path, damage):
    manifest, _ = published(source, artifacts)
    weights = fetch(manifest, artifacts, tmp_path / "cache") / "model.safetensors"
    weights.unlink() if damage is None else weights.write_bytes(damage)
    assert contents(fetch(manifest, artifacts, tmp_path / "cache")) == contents(source)


def test_a_missing_object_leaves_nothing_behind(source, artifacts, tmp_path):
    manifest, _ = published(source, artifacts)
    artifacts.delete(manifest.files[1].ref.key)
    with pytest.raises(ArtifactMissing):
        fetch(manifest, artifacts, tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_many_may_fetch_at_once(source, artifacts, tmp_path):
    manifest, _ = published(source, artifacts)
    with ThreadPoolExecutor(8) as pool:
        fetched = set(pool.map(lambda _: fetch(manifest, artifacts, tmp_path / "cache"), range(32)))
    assert [contents(directory) for directory in fetched] == [contents(source)]


def test_policies_of_like_names_do_not_meet(source, artifacts, tmp_path):
    names = ["local:a/b", "local:a_b", "local_a_b"]
    manifests = [published(source, artifacts, policy=name)[0] for name in names]
    assert len({fetch(manifest, artifacts, tmp_path) for manifest in manifests}) == 3


def test_a_manifest_must_be_that_of_the_version(source, artifacts):
    _, ref = published(source, artifacts)
    assert open_manifest(ref, artifacts, policy="builtin", version=0).version == 0
    with pytest.raises(WeightsRefused, match="manifest of builtin@0, not of builtin@1"):
        open_manifest(ref, artifacts, policy="builtin", version=1)
    nonsense = artifacts.put(b"[]", session="policies", kind="manifest")
    with pytest.raises(WeightsRefused, match="is not a manifest"):
        open_manifest(nonsense, artifacts, policy="builtin", version=0)


def test_a_version_follows_its_parent(source, artifacts):
    _, ref = published(source, artifacts)
    manifest, _ = published(source, artifacts, version=1, lineage=lineage(ref, 0))
    assert (manifest.parent_version, manifest.published(ref).batch_id) == (0, "b")
    with pytest.raises(ValidationError, match="version 3 cannot follow version 0"):
        published(source, artifacts, version=3, lineage=lineage(ref, 0))


@pytest.mark.parametrize("name", ["../config.json", "a/b", "..", "/etc/passwd", "model.safetensors"])
def test_a_manifest_cannot_write_outside_its_directory(source, artifacts, name):
    manifest, _ = published(source, artifacts)
    body = manifest.model_dump()
    body["files"][0]["name"] = name
    with pytest.raises(ValidationError, match="plain and different"):
        Manifest.model_validate(body)


def test_a_directory_of_anything_but_plain_files_is_refused(source, artifacts, tmp_path):
    with pytest.raises(WeightsRefused, match="plain files"):
        published(tmp_path / "nowhere", artifacts)
    (source / "nested").mkdir()
    with pytest.raises(WeightsRefused, match="plain files"):
        published(source, artifacts)


def test_manifests_and_learning_need_no_torch():
    modules = "longstride.training.weights, longstride.learning.samples, longstride.learning.trajectory"
    check = f"import sys, {modules}; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
