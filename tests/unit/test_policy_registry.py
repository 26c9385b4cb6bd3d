import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from longstride.policies import registry as registry_module
from longstride.policies.base import PolicyUnavailable
from longstride.policies.naming import PolicyName, found_from, parse_name
from longstride.policies.registry import PolicyRegistry
from longstride.storage.errors import ArtifactMissing
from longstride.storage.memory import MemoryArtifacts
from longstride.training.errors import WeightsRefused
from longstride.training.probe import Probe
from tests.support import versions

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("builtin", PolicyName("builtin", None, None)),
        ("builtin@7", PolicyName("builtin", None, 7)),
        ("scripted:/a/b@2.json", PolicyName("scripted", "/a/b@2.json", None)),
        ("local:/models/qwen@4", PolicyName("local", "/models/qwen@4", None)),
        ("remote:http://host:8000/v1#m@1", PolicyName("remote", "http://host:8000/v1#m@1", None)),
        ("remote", PolicyName("remote", None, None)),
    ],
)
def test_names_are_taken_apart(name, expected):
    assert parse_name(name) == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpt-5", "unknown policy 'gpt-5': a policy is builtin, builtin@VERSION, scripted:PATH"),
        ("builtin@x", "unknown policy"),
        ("builtin@", "unknown policy"),
        ("builtin:/path", "unknown policy"),
        ("scripted", "names no file: write scripted:PATH"),
        ("local:", "unknown policy"),
        ("local", "names no file: write local:PATH"),
        ("x" * 5000, "unknown policy 'xxx"),
    ],
)
def test_unknown_names_are_refused_with_a_sentence(name, message):
    with pytest.raises(PolicyUnavailable, match=message) as caught:
        PolicyRegistry().resolve(name)
    assert len(str(caught.value)) < 400


def test_a_script_is_loaded_once(tmp_path):
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"lines": [{"say": "hello"}]}))
    registry = PolicyRegistry(default=f"scripted:{path}")
    assert registry.resolve(None) is registry.resolve(f"scripted:{path}")
    assert registry.resolve(None).name == f"scripted:{path}"


def test_only_a_few_policies_stay_loaded():
    built = []

    def build(name):
        built.append(name.where)
        return object()

    registry = PolicyRegistry(builders={"local": build})
    for where in "abcd":
        registry.resolve(f"local:{where}")
    registry.resolve("local:d")
    registry.resolve("local:a")
    assert built == ["a", "b", "c", "d", "a"]


def test_a_missing_script_is_named(tmp_path):
    with pytest.raises(PolicyUnavailable, match=r"cannot read the script .*gone\.json"):
        PolicyRegistry().resolve(f"scripted:{tmp_path / 'gone.json'}")


def test_an_unknown_version_lists_the_known_ones():
    with pytest.raises(PolicyUnavailable, match="builtin has no version 999 here; known are 0, 1"):
        PolicyRegistry().resolve("builtin@999")


def test_broken_weights_are_named(tmp_path, monkeypatch):
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "config.json").write_text("{")
    monkeypatch.setattr(registry_module, "BUILTIN_WEIGHTS", tmp_path)
    with pytest.raises(PolicyUnavailable, match=r"builtin@1 cannot be loaded: .*model\.safetensors is missing"):
        PolicyRegistry().resolve("builtin")


@pytest.mark.parametrize("name", ["scripted", "remote"])
def test_torch_is_imported_for_those_alone_that_need_it(tmp_path, name):
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"lines": [{"say": "hello"}]}))
    full = f"scripted:{path}" if name == "scripted" else "remote:http://127.0.0.1:9/v1"
    code = (
        "import sys; from longstride.policies.registry import PolicyRegistry; import longstride.policies.turn;"
        f"PolicyRegistry().resolve({full!r}); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


published = versions.publish_version
"""The shipped weights, published as another version."""


def test_a_published_version_is_served_and_the_old_one_can_still_be_named(tmp_path):
    shelf = MemoryArtifacts()
    registry = PolicyRegistry(artifacts=shelf, directory=tmp_path)
    old = registry.resolve("builtin")
    registry.publish(published(7, shelf))
    assert registry.resolve("builtin").version == 7
    assert registry.resolve("builtin@7") is registry.resolve("builtin")
    assert registry.resolve(f"builtin@{old.version}") is old
    assert registry.versions == (0, 1, 7)


def test_a_version_that_arrives_late_does_not_set_the_policy_back(tmp_path):
    shelf = MemoryArtifacts()
    registry = PolicyRegistry(artifacts=shelf, directory=tmp_path)
    registry.publish(published(7, shelf))
    registry.publish(published(5, shelf))
    assert registry.resolve("builtin").version == 7
    assert registry.resolve("builtin@5").version == 5


def test_calls_find_a_policy_at_every_moment_of_a_swap(tmp_path):
    shelf = MemoryArtifacts()
    registry = PolicyRegistry(artifacts=shelf, directory=tmp_path)
    registry.resolve("builtin")
    seen: list[int] = []
    done = threading.Event()

    def call() -> None:
        while not done.is_set():
            seen.append(registry.resolve("builtin").version)

    caller = threading.Thread(target=call)
    caller.start()
    try:
        for version in (2, 3, 4):
            registry.publish(published(version, shelf))
    finally:
        done.set()
        caller.join()
    assert seen == sorted(seen)
    assert set(seen) <= {1, 2, 3, 4}
    assert registry.resolve(None).version == 4


def test_other_policies_and_other_processes_cannot_publish(tmp_path):
    shelf = MemoryArtifacts()
    event = published(2, shelf)
    with pytest.raises(PolicyUnavailable, match="without a store"):
        PolicyRegistry().publish(event)
    with pytest.raises(PolicyUnavailable, match="local:/x has no versions"):
        PolicyRegistry(artifacts=shelf, directory=tmp_path).publish(event.model_copy(update={"policy": "local:/x"}))


@pytest.fixture
def shelf():
    return MemoryArtifacts()


@pytest.fixture
def registry(tmp_path, shelf):
    return PolicyRegistry(artifacts=shelf, directory=tmp_path)


def test_a_version_that_computes_what_its_trainer_did_is_served(registry, shelf):
    gap = registry.publish(published(2, shelf, probe=versions.probe_of_shipped()))
    assert gap < 1e-4
    assert registry.resolve("builtin").version == 2


def test_a_version_without_a_probe_is_served_unprobed(registry, shelf):
    assert registry.publish(published(2, shelf)) is None
    assert registry.resolve("builtin").version == 2


@pytest.mark.parametrize("spoil", [versions.louder, versions.without_last_block, versions.noisy])
def test_weights_that_were_changed_after_the_probe_are_refused_and_the_old_ones_go_on(registry, shelf, spoil):
    """All hashes fit: what is wrong is what they compute."""
    registry.publish(published(2, shelf, probe=versions.probe_of_shipped()))
    before = registry.resolve("builtin")
    with pytest.raises(WeightsRefused, match=r"differ from the trainer's by .* it does not serve these weights"):
        registry.publish(published(3, shelf, probe=versions.probe_of_shipped(), spoil=spoil))
    assert registry.resolve("builtin") is before
    assert registry.current == 2
    assert registry.versions == (0, 1, 2)
    with pytest.raises(PolicyUnavailable, match="builtin has no version 3 here"):
        registry.resolve("builtin@3")


def test_a_stale_version_under_a_new_number_is_refused(registry, shelf):
    """What a lost weight sync looks like: well-formed actions of another version's weights."""
    stale = registry_module.BUILTIN_WEIGHTS / "v0"
    with pytest.raises(WeightsRefused, match="differ from the trainer's"):
        registry.publish(published(2, shelf, probe=versions.probe_of_shipped(), source=stale))
    assert registry.current == 1


def test_what_is_refused_does_not_replace_what_is_served_under_the_same_number(registry, shelf):
    registry.publish(published(2, shelf, probe=versions.probe_of_shipped()))
    before = registry.resolve("builtin@2")
    with pytest.raises(WeightsRefused):
        registry.publish(published(2, shelf, probe=versions.probe_of_shipped(), spoil=versions.louder))
    assert registry.resolve("builtin@2") is before


def test_a_probe_that_is_declared_and_gone_keeps_its_version_from_being_served(registry, shelf):
    event = published(2, shelf, probe=versions.probe_of_shipped())
    (key,) = [stored.key for stored in shelf.list("policies/probe/")]
    shelf.delete(key)
    with pytest.raises(ArtifactMissing):
        registry.publish(event)
    assert registry.current == 1


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ({-1: 9999}, "ids outside the 563"),
        ({-1: -1}, "ids outside the 563"),
        ({0: 0}, r"id 0 at position 0 is not allowed by the grammar"),
    ],
)
def test_a_probe_that_cannot_have_been_sampled_is_refused(registry, shelf, ids, message):
    """``ids`` replaces some of the first output's."""
    segment = versions.probe_of_shipped().segments[0]
    turn, changed = segment.turns[0], list(segment.ids)
    for at, token in ids.items():
        changed[turn.start + at] = token
    probe = Probe(segments=[segment.model_copy(update={"ids": tuple(changed)})])
    with pytest.raises(WeightsRefused, match=f"builtin@2 cannot have sampled its probe: .*{message}"):
        registry.publish(published(2, shelf, probe=probe))
    assert registry.current == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("scripted:here.json", "scripted:{folder}/here.json"),
        ("local:here.json", "local:{folder}/here.json"),
        ("scripted:nowhere.json", "scripted:nowhere.json"),
        ("scripted:/etc/passwd", "scripted:/etc/passwd"),
        ("remote:here.json", "remote:here.json"),
        ("builtin@3", "builtin@3"),
    ],
)
def test_a_relative_path_is_meant_from_where_it_was_typed(tmp_path: Path, name: str, expected: str) -> None:
    (tmp_path / "here.json").write_text("{}")
    assert found_from(name, tmp_path) == expected.format(folder=tmp_path)
