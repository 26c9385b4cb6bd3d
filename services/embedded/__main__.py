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
from longstride.messaging.address import JOB_QUEUES
from longstride.messaging.celery_app import JobSettings
from longstride.messaging.colocated import ColocatedCommands, Lane
from longstride.messaging.commands import QueuedCommands
from longstride.messaging.consumer import Consumer
from longstride.messaging.errors import BusUnavailable, MessagingError
from longstride.messaging.job_runner import JobRunner
from longstride.messaging.job_worker import EmbeddedJobs, JobWorker
from longstride.messaging.part import Part
from longstride.messaging.service import ServiceRuntime
from longstride.observability.settings import TelemetrySettings
from longstride.observability.wrong_settings import WRONG, told
from longstride.sandbox.errors import SandboxUnavailable
from longstride.storage.embedded import EmbeddedPostgres
from longstride.storage.errors import StorageError
from longstride.tools.mcp.catalogue import MCP_FILE, CatalogueUnusable
from services.connections import Connections
from services.embedded.guard import PostgresGuard
from services.embedded.home import HomeTaken, announce, owned, tell, withdraw
from services.host import Host, check, open_host, refuse
from services.jobs import Jobs
from services.model_worker import main as model_worker
from services.model_worker import trainer_main as trainer
from services.model_worker.settings import ModelWorkerSettings
from services.model_worker.shipped import publish_shipped
from services.planner import main as planner
from services.planner.settings import PlannerSettings
from services.telemetry import main as telemetry
from services.telemetry.settings import RecorderSettings
from services.tool_executor import main as tool_executor
from services.tool_executor.settings import ToolExecutorSettings

READY_S = 30.0
QUEUED_JOBS = 2
"""Jobs at a time that come from a queue: an update, and a tool call that is tried again."""
EXECUTE = JOB_QUEUES["execute_action"]


def connections(home: Path, database_url: str) -> Connections:
    """A stack that needs nothing from outside ``home``."""
    found = Connections(
        database_url=SecretStr(database_url),
        amqp_url=SecretStr(f"memory://{new_id('stack')}"),
        artifacts_dir=home / "artifacts",
        state_dir=home / "state",
    )
    own = home / MCP_FILE
    return found.model_copy(update={"mcp_file": own}) if found.mcp_file is None and own.exists() else found


def services(host: Host, home: Path) -> list[Part]:
    """Every service under its own name. The planner's commands go straight to their workers; what must be tried again
    comes through the queues, and so does everything else."""
    planning, serving = beside(host, "planner"), beside(host, "model-worker")
    engine, tools = model_worker.make(serving), _tools(host, home)
    commands = ColocatedCommands(host.backbone.leases, QueuedCommands(host.backbone.outbox), host.tools.unsafe)
    dispatcher = planner.make(planning, commands)
    lanes = [Lane(queue, engine.worker, dispatcher.settle, engine.slots) for queue in engine.queues]
    lanes.append(Lane(EXECUTE, tools.worker, dispatcher.settle, ToolExecutorSettings().slots))
    commands.open(lanes)
    return [
        *lanes,
        *planner.consuming(planning, dispatcher),
        *model_worker.consuming(serving, engine),
        *telemetry.parts(beside(host, "telemetry")),
        *tools.parts,
        working(host, tools, trainer.make(beside(host, "trainer"))),
    ]


def _tools(host: Host, home: Path) -> Jobs:
    """All of a task's calls come to this process."""
    return tool_executor.make(beside(host, "tool-executor"), home / "secrets", keeps=True)


def working(host: Host, tools: Jobs, updates: Jobs) -> EmbeddedJobs:
    """Tool calls and policy updates from their queues, in threads of one Celery worker."""
    settings = JobSettings(host.connections.amqp_url.get_secret_value(), slots=QUEUED_JOBS, pool="threads")
    runner = lambda: JobRunner(host.backbone, tools.worker, updates.plain, owns=False)  # noqa: E731
    return EmbeddedJobs(JobWorker(settings, runner))


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


def _database(home: Path) -> EmbeddedPostgres:
    """Not started yet."""
    tell("making or starting the database")
    return EmbeddedPostgres(home / "postgres")


def serve(home: Path, start: int | None) -> int:
    """Run the stack in ``home`` until SIGTERM; returns the exit code. ``start``: see ``owned``."""
    with owned(home, start), _database(home) as postgres:
        tell("bringing the database's tables up to date")
        host = open_host("embedded", connections(home, postgres.url), pool_size=16)
        check(host)
        host.backbone.succeed()
        tell("starting the services")
        publish_shipped(host)
        parts = [PostgresGuard(postgres), *host.housekeeping(), *services(host, home)]
        runtime = ServiceRuntime(host.backbone, parts)
        runtime.end_on_signals()
        runtime.start()
        wait_ready(parts)
        host.started()
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


def _read_settings() -> None:
    """Those of every service, before a database is made: what does not fit is told at once."""
    for kind in (PlannerSettings, ModelWorkerSettings, ToolExecutorSettings, RecorderSettings, TelemetrySettings):
        kind()


def main() -> int:
    """Parse the arguments, and turn what can go wrong into a sentence."""
    parser = argparse.ArgumentParser(prog="python -m services.embedded", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the stack's folder")
    parser.add_argument(
        "--start-lock", type=int, metavar="FD", help="an open lock, let go of once the folder's is held"
    )
    arguments = parser.parse_args()
    try:
        _read_settings()
        return serve(arguments.home.expanduser().absolute(), arguments.start_lock)
    except WRONG as error:
        return refuse(f"settings: {told(error)}")
    except (StorageError, MessagingError, SandboxUnavailable, HomeTaken, CatalogueUnusable) as error:
        return refuse(str(error))


if __name__ == "__main__":
    sys.exit(main())
