"""The model-worker's composition root: ``python -m services.model_worker.main``."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from longstride.messaging.handling import check_handlers
from longstride.messaging.part import Part
from longstride.messaging.source import Source
from longstride.messaging.work import Worker
from longstride.observability.middleware import work_spans
from longstride.policies.artifacts import CachedArtifacts
from longstride.policies.registry import PolicyRegistry
from services.host import Host, Serving, run
from services.model_worker.engine import VersionListener
from services.model_worker.handlers import ModelWorker, handlers, listeners
from services.model_worker.settings import ModelWorkerSettings


@dataclass(frozen=True)
class Engine:
    """What answers a model-worker's messages."""

    worker: Worker
    """Leased model calls."""
    queues: Sequence[str]
    """Where they come from, one a track."""
    slots: int
    """Calls at a time, a queue."""
    listener: VersionListener


def make(host: Host) -> Engine:
    """A model-worker's insides."""
    settings = ModelWorkerSettings()
    backbone, artifacts = host.backbone, CachedArtifacts(host.artifacts)
    weights = host.connections.state_dir / "weights"
    policies = PolicyRegistry(
        default=settings.policy, artifacts=artifacts, directory=weights, torch_threads=settings.threads
    )
    model_worker = ModelWorker(policies, artifacts, host.tools)
    check_handlers("model-worker", {**handlers(model_worker), **listeners(model_worker)})
    spans = work_spans(host.telemetry, "model-worker")
    worker = Worker(handlers(model_worker), backbone.leases, backbone.database, middleware=(spans,))
    listener = VersionListener(model_worker, policies, backbone.database, host.telemetry.metrics)
    return Engine(worker, [f"longstride.generate.{track}" for track in settings.tracks], settings.slots, listener)


def consuming(host: Host, engine: Engine) -> Sequence[Part]:
    """A consumer a track, and an ear for new versions."""
    backbone, listener = host.backbone, engine.listener
    calls = [Serving(backbone.bus, queue, engine.worker, slots=engine.slots) for queue in engine.queues]
    own = Source(f"longstride.engine.{backbone.incarnation}", own_keys=["policy_published"])
    return [*host.watched(*calls), Serving(backbone.bus, own, listener, on_connect=listener.catch_up)]


def parts(host: Host) -> Sequence[Part]:
    """What a model-worker runs."""
    return consuming(host, make(host))


if __name__ == "__main__":
    sys.exit(run("model-worker", parts))
