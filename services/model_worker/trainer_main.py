"""The trainer's composition root, beside the engine's: ``python -m services.model_worker.trainer_main``."""

import sys
from collections.abc import Callable
from typing import Any

from longstride.contracts.envelope import Envelope
from longstride.messaging.handling import check_handlers
from longstride.messaging.job_runner import PlainJob
from longstride.messaging.work import Worker
from longstride.observability.middleware import processing
from longstride.observability.propagation import stamped
from services.host import Host
from services.jobs import Jobs, run_jobs
from services.model_worker import sweeper, trainer
from services.model_worker.shipped import publish_shipped
from services.model_worker.sweeper import Sweeper
from services.model_worker.trainer import PolicyTrainer


def make(host: Host) -> Jobs:
    """What the trainer's process carries out, one at a time: updates, and sweeps."""
    backbone = host.backbone
    weights = host.connections.state_dir / "training"
    updates = trainer.jobs(PolicyTrainer(backbone.database, host.artifacts, backbone.outbox, weights))
    table = {**updates, **sweeper.jobs(Sweeper(backbone.database, host.artifacts))}
    check_handlers("trainer", table)
    plain = {name: _observed(host, job) for name, job in table.items()}
    return Jobs(Worker({}, backbone.leases, backbone.database), plain)


def _observed(host: Host, job: PlainJob) -> Callable[[Envelope, Any], object]:
    def run(envelope: Envelope, message: Any) -> object:
        with processing(host.telemetry, "trainer", envelope, message):
            return job(stamped(envelope), message)

    return run


if __name__ == "__main__":
    sys.exit(run_jobs("trainer", 1, make, publish_shipped))
