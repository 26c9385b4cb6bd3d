"""What every service's process does first and last: connect, check, tell, end."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from longstride.messaging.backbone import Backbone
from longstride.messaging.bus import Bus
from longstride.messaging.consumer import Consumer, nothing
from longstride.messaging.delivery import Delivery
from longstride.messaging.errors import MessagingError
from longstride.messaging.part import Part
from longstride.messaging.relay import Observer
from longstride.messaging.service import ServiceRuntime
from longstride.messaging.source import Source
from longstride.messaging.startup_checks import check_broker
from longstride.messaging.watchdog import Watchdog
from longstride.observability.publishing import published
from longstride.observability.settings import TelemetrySettings
from longstride.observability.setup import Telemetry, setup
from longstride.observability.span_record import SpanRecord, SpanWriter
from longstride.observability.wrong_settings import WRONG, told
from longstride.storage.artifacts import ArtifactStore
from longstride.storage.database import Database
from longstride.storage.errors import StorageError
from longstride.storage.migrations import upgrade
from longstride.storage.outbox import OutboxMessage
from longstride.storage.readiness import patiently, wait_for_artifacts, wait_for_database
from longstride.tools.mcp.catalogue import CatalogueUnusable
from longstride.tools.mcp.register import offered_tools
from longstride.tools.registry import Registry
from services.connections import Connections
from services.startup import CHECK, Startup


class Stoppable(Protocol):
    """A ``Dispatcher`` or a ``Worker``."""

    def __call__(self, delivery: Delivery) -> object: ...

    def stop(self) -> None:
        """Do not wait for outages to end any more."""


class Serving(Consumer):
    """A consumer that frees its handlers from waiting for an outage to end, when the service is to end first."""

    def __init__(
        self,
        bus: Bus,
        source: Source | str,
        handle: Stoppable,
        *,
        slots: int = 1,
        on_connect: Callable[[], object] = nothing,
    ) -> None:
        super().__init__(bus, source, handle, slots=slots, on_connect=on_connect, on_drain=handle.stop)


@dataclass(frozen=True)
class Host:
    """One process: its connections, what keeps its promises, and how it is observed."""

    service: str
    connections: Connections
    backbone: Backbone
    telemetry: Telemetry
    tools: Registry
    """The tools there are."""
    startup: Startup

    def started(self) -> None:
        """From now on its other checks tell how it does."""
        self.telemetry.health.withdraw(CHECK)

    def patiently(self, act: Callable[[], None], name: str) -> None:
        """Do at the start what needs ``name``, which may go away again after ``check`` has found it there.

        Raises:
            StorageError: it did not come back in time, or waiting would not help.
        """
        patiently(act, name, self.connections.patience_s, self.startup.say)

    @cached_property
    def artifacts(self) -> ArtifactStore:
        """The artifact store."""
        return self.connections.artifacts()

    def housekeeping(self) -> Sequence[Part]:
        """What every process does for all of them."""
        return self.backbone.housekeeping(self.tools.unsafe)

    def watched(self, *consumers: Consumer) -> list[Part]:
        """Consumers, and the watchdog over them."""
        return [*consumers, Watchdog(self.backbone.bus, consumers)]


def open_host(
    service: str,
    connections: Connections,
    *,
    pool_size: int = 8,
    telemetry: Telemetry | None = None,
    settings: TelemetrySettings | None = None,
    tools: Registry | None = None,
) -> Host:
    """Connect to nothing yet; say who this is.

    Args:
        service: as in ``contracts.flow``.
        connections: where everything is.
        pool_size: database connections at the most.
        telemetry: of a process that hosts several services; ``None`` sets it up.
        settings: of the telemetry that is set up; ``None``: the environment's.
        tools: those that the parent process has; ``None``: the builtin ones and those of ``connections.mcp_file``.

    Raises:
        CatalogueUnusable: that file cannot be used.
    """
    tools = tools or offered_tools(connections.mcp_file)
    database_url, amqp_url = connections.database_url.get_secret_value(), connections.amqp_url.get_secret_value()
    backbone = Backbone(
        service,
        database_url,
        amqp_url,
        pool_size=pool_size,
        lease_ttl_s=connections.lease_ttl_s,
        heartbeat_s=connections.heartbeat_s,
    )
    startup = Startup()
    telemetry = telemetry or setup(
        service,
        settings or TelemetrySettings(),
        writer=span_writer(database_url),
        incarnation=backbone.incarnation,
        checks={CHECK: startup},
    )
    backbone.relay.on_settled = publication_spans(telemetry)
    return Host(service, connections, backbone, telemetry, tools, startup)


def publication_spans(telemetry: Telemetry) -> Observer:
    """A span for each message, written when the broker has answered."""

    def observe(row: OutboxMessage, started_ns: int, error: MessagingError | None) -> None:
        published(
            telemetry,
            row.wire,
            row.routing_key,
            reply=row.carrier == "reply",
            started_ns=started_ns,
            ended_ns=time.time_ns(),
            error=str(error) if error else None,
        )

    return observe


def span_writer(database_url: str) -> SpanWriter:
    """Writes spans over a connection of its own: a full pool must not lose them, and they must not fill the pool."""
    database = Database(database_url, pool_size=1, max_overflow=0, application_name="longstride spans")

    def write(spans: Sequence[SpanRecord]) -> None:
        with database.begin(durable=False) as uow:
            uow.spans.add_many(spans)

    return write


def check(host: Host) -> None:
    """Wait for what the service needs, bring the schema up to date, refuse what does not suit.

    Raises:
        StorageError, MessagingError: the text says what is wrong, and what to do.
    """
    patience, say = host.connections.patience_s, host.startup.say
    if host.connections.migrate:
        migrate(host.connections, say)
    wait_for_database(host.backbone.database, patience, say)
    wait_for_artifacts(host.artifacts, patience, say)
    check_broker(host.backbone.bus, wait_s=patience, say=say)


def migrate(connections: Connections, say: Callable[[str], None]) -> None:
    """Bring the schema up to date, once PostgreSQL answers."""
    url = connections.database_url.get_secret_value()
    patiently(lambda: upgrade(url), "PostgreSQL", connections.patience_s, say)


def run(service: str, parts: Callable[[Host], Sequence[Part]]) -> int:
    """A service as a process of its own, until SIGTERM; returns the exit code."""
    try:
        host = open_host(service, Connections())
        check(host)
        runtime = ServiceRuntime(host.backbone, [*host.housekeeping(), *parts(host)])
        host.telemetry.health.register("parts", lambda: ailing(runtime))
        host.started()
    except WRONG as error:
        return refuse(f"settings: {told(error)}")
    except (StorageError, MessagingError, CatalogueUnusable) as error:
        return refuse(str(error))
    code = runtime.run()
    host.telemetry.shutdown()
    return code


def ailing(runtime: ServiceRuntime) -> str | None:
    """The part that cannot go on, for the health check."""
    failed = runtime.failed()
    return f"{failed.name}: {failed.failure!r}" if failed else None


def refuse(sentence: str) -> int:
    """Say why the service does not start; returns the exit code."""
    print(f"longstride: {sentence}", file=sys.stderr)  # noqa: T201 - the last words of a process
    return 78
