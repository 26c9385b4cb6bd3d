"""The embedded stack's composition root: ``python -m services.embedded --home DIR``."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import SecretStr

from longstride.contracts.ids import new_id
from longstride.messaging.celery_app import JobSettings
from longstride.messaging.consumer import Consumer
from longstride.messaging.errors import BusUnavailable, MessagingError
from longstride.messaging.job_runner import JobRunner
from longstride.messaging.job_worker import EmbeddedJobs, JobWorker
from longstride.messaging.part import Part
from longstride.messaging.service import ServiceRuntime
from longstride.sandbox.errors import SandboxUnavailable
from longstride.storage.embedded import EmbeddedPostgres
from longstride.storage.errors import StorageError
from services.connections import Connections
from services.embedded.guard import PostgresGuard
from services.embedded.home import HomeTaken, announce, owned, withdraw
from services.host import Host, check, open_host, refuse
from services.jobs import Jobs
from services.model_worker import main as model_worker
from services.model_worker import trainer_main as trainer
from services.model_worker.shipped import publish_shipped
from services.planner import main as planner
from services.telemetry import main as telemetry
from services.tool_executor import main as tool_executor
from services.tool_executor.settings import ToolExecutorSettings

READY_S = 30.0


def connections(home: Path, database_url: str) -> Connections:
    """A stack that needs nothing from outside ``home``."""
    return Connections(
        database_url=SecretStr(database_url),
        amqp_url=SecretStr(f"memory://{new_id('stack')}"),
        artifacts_dir=home / "artifacts",
        state_dir=home / "state",
    )


def serving(host: Host) -> list[Part]:
    """The services that consume messages, each under its own name."""
    services = (("planner", planner.parts), ("model-worker", model_worker.parts), ("telemetry", telemetry.parts))
    return [part for name, parts in services for part in parts(beside(host, name))]


def working(host: Host) -> EmbeddedJobs:
    """Tool calls and policy updates, in threads of one Celery worker."""
    settings = JobSettings(
        host.connections.amqp_url.get_secret_value(), slots=ToolExecutorSettings().slots, pool="threads"
    )
    tools, updates = tool_executor.make(beside(host, "tool-executor")), trainer.make(beside(host, "trainer"))
    jobs = Jobs(tools.worker, updates.plain, tools.close)
    return EmbeddedJobs(JobWorker(settings, lambda: JobRunner(host.backbone, jobs.worker, jobs.plain, owns=False)))


def beside(host: Host, service: str) -> Host:
    """The same process, seen as one of its services."""
    return replace(host, service=service, telemetry=host.telemetry.beside(service, host.backbone.incarnation))


def wait_ready(parts: Sequence[Part]) -> None:
    """Return once messages can arrive everywhere.

    Raises:
        BusUnavailable: a consumer did not connect in time.
    """
    deadline = time.monotonic() + READY_S
    for part in parts:
        left = max(0.1, deadline - time.monotonic())
        waits = {Consumer: "wait_connected", EmbeddedJobs: "wait_ready"}
        wait = next((getattr(part, name) for kind, name in waits.items() if isinstance(part, kind)), None)
        if wait is not None and not wait(left):
            raise BusUnavailable(f"{part.name} was not ready after {READY_S:g} s")


def serve(home: Path) -> int:
    """Run the stack in ``home`` until SIGTERM; returns the exit code."""
    with owned(home), EmbeddedPostgres(home / "postgres") as postgres:
        host = open_host("embedded", connections(home, postgres.url), pool_size=16)
        check(host)
        host.backbone.succeed()
        publish_shipped(host)
        parts = [PostgresGuard(postgres), *host.housekeeping(), *serving(host), working(host)]
        runtime = ServiceRuntime(host.backbone, parts)
        runtime.end_on_signals()
        runtime.start()
        wait_ready(parts)
        assert host.connections.artifacts_dir is not None
        announce(home, postgres.url, host.connections.artifacts_dir, host.backbone.incarnation)
        failed = runtime.wait()
        if postgres.died:
            os._exit(1)  # without it nothing can be handed over; the next life takes over, as after a kill -9
        if failed is None:
            withdraw(home)
        runtime.stop()
        host.telemetry.shutdown()
    return 1 if failed else 0


def main() -> int:
    """Parse the one argument, and turn what can go wrong into a sentence."""
    parser = argparse.ArgumentParser(prog="python -m services.embedded", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the stack's folder")
    home = parser.parse_args().home.expanduser().absolute()
    try:
        return serve(home)
    except (StorageError, MessagingError, SandboxUnavailable, HomeTaken) as error:
        return refuse(str(error))


if __name__ == "__main__":
    sys.exit(main())
