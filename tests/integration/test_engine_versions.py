"""A published version reaches the engines: served, or refused with the reason where people look."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import torch

from longstride.contracts.envelope import seal
from longstride.contracts.v1.events import PolicyPublished
from longstride.messaging.backbone import Backbone
from longstride.messaging.source import Source
from longstride.observability.settings import TelemetrySettings
from longstride.observability.setup import Telemetry, setup
from longstride.policies.registry import PolicyRegistry
from longstride.storage.memory import MemoryArtifacts
from longstride.storage.policies import PolicyVersion
from longstride.tools.registry import builtin_tools
from services.model_worker.engine import VersionListener
from services.model_worker.handlers import ModelWorker
from tests.support import versions
from tests.support.eventually import eventually
from tests.support.messaging_fixtures import *  # noqa: F403
from tests.support.messaging_fixtures import start_consumer

torch.set_num_threads(1)


@pytest.fixture
def shelf() -> MemoryArtifacts:
    return MemoryArtifacts()


@pytest.fixture
def telemetry(running: ExitStack) -> Telemetry:
    telemetry = setup("model-worker", TelemetrySettings(otlp_endpoint=None, metrics_port=0))
    running.callback(telemetry.shutdown)
    return telemetry


@pytest.fixture
def policies(shelf: MemoryArtifacts, tmp_path: Path) -> PolicyRegistry:
    return PolicyRegistry(artifacts=shelf, directory=tmp_path)


@pytest.fixture
def listener(
    policies: PolicyRegistry, shelf: MemoryArtifacts, backbone: Backbone, telemetry: Telemetry
) -> VersionListener:
    worker = ModelWorker(policies, shelf, builtin_tools())
    return VersionListener(worker, policies, backbone.database, telemetry.metrics)


@pytest.fixture
def engine(listener: VersionListener, backbone: Backbone, running: ExitStack) -> str:
    """An engine that listens; its queue."""
    queue = f"longstride.engine.{uuid4().hex}"
    start_consumer(running, backbone, Source(queue, ["policy_published"]), listener)  # type: ignore[arg-type]
    return queue


def tell(backbone: Backbone, event: PolicyPublished) -> None:
    with backbone.database.begin() as uow:
        backbone.outbox.post(uow, seal(event))


def letters(backbone: Backbone) -> Any:
    with backbone.database.begin() as uow:
        return uow.dead_letters.list()


def test_a_refused_version_is_a_dead_letter_with_the_reason_and_the_one_before_goes_on(
    backbone: Backbone, policies: PolicyRegistry, engine: str, shelf: MemoryArtifacts
) -> None:
    probe = versions.probe_of_shipped()
    tell(backbone, versions.publish_version(2, shelf, probe=probe))
    eventually(lambda: policies.current == 2)
    tell(backbone, versions.publish_version(3, shelf, probe=probe, spoil=versions.louder))
    (letter,) = eventually(lambda: letters(backbone))
    assert letter.queue == engine
    assert letter.type == "policy_published"
    assert letter.reason.startswith("builtin@3 is not served: the engine's log-probabilities differ from the trainer's")
    assert policies.resolve("builtin").version == 2
    tell(backbone, versions.publish_version(4, shelf, probe=probe))
    eventually(lambda: policies.current == 4)
    assert len(letters(backbone)) == 1


def test_a_version_whose_objects_are_gone_is_a_dead_letter(
    backbone: Backbone, policies: PolicyRegistry, engine: str, shelf: MemoryArtifacts
) -> None:
    event = versions.publish_version(2, shelf)
    shelf.delete(event.manifest.key)
    tell(backbone, event)
    (letter,) = eventually(lambda: letters(backbone))
    assert letter.queue == engine
    assert event.manifest.key in letter.reason
    assert policies.current == 1


def test_an_engine_that_starts_serves_the_newest_version_that_it_can(
    backbone: Backbone, policies: PolicyRegistry, listener: VersionListener, shelf: MemoryArtifacts
) -> None:
    probe = versions.probe_of_shipped()
    spoiled = {4: versions.noisy, 5: versions.louder}
    with backbone.database.begin() as uow:
        for version in (1, 2, 3, 4, 5):
            spoil = {"spoil": spoiled[version]} if version in spoiled else {}
            event = versions.publish_version(version, shelf, probe=probe, **spoil)
            uow.policies.publish(PolicyVersion("builtin", version, event.manifest))
    listener.catch_up()
    assert policies.current == 3
    assert policies.versions == (0, 1, 3)
