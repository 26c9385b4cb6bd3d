"""The composition root of a service's keeper: ``python -m services.tool_executor.keeper_main FOLDER PID``.

Started by the first child of a tool-executor that needs it; ends with the service.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from longstride.agent.redaction import redact
from longstride.messaging.part import Part
from longstride.observability import names
from longstride.observability.context import Value, bind
from longstride.observability.names import Attribute
from longstride.observability.redact import hiding
from longstride.observability.settings import TelemetrySettings
from longstride.observability.spans import under
from longstride.sandbox.errors import SandboxUnavailable
from longstride.sandbox.scratch import default_root
from longstride.tools.keeper import CarryOut, Door, Keeper, started
from longstride.tools.keeper_link import KeeperLink
from longstride.tools.kept_call import KeptAnswer, KeptCall
from longstride.tools.mcp.catalogue import CatalogueUnusable
from longstride.tools.mcp.register import preload
from services.connections import Connections
from services.host import Host, open_host, refuse
from services.tool_executor.settings import ToolExecutorSettings
from services.tool_executor.workshop import Workshop, open_workshop

logger = logging.getLogger(__name__)

POOL = 2
"""Database connections: it only asks how tasks do."""


def link(service: int) -> KeeperLink:
    """For a process of the service whose process id this is."""
    door = Door(default_root().parent / "keepers", service)
    line = [sys.executable, "-m", "services.tool_executor.keeper_main", str(door.folder), str(service)]
    return KeeperLink(door, line)


def carrying_out(host: Host, workshop: Workshop) -> CarryOut:
    """As the service's other processes do, with spans where the call came from."""

    def carry_out(call: KeptCall, called_off: threading.Event) -> KeptAnswer:
        command = call.command
        fields: dict[Attribute, Value | None] = {
            names.TASK_ID: call.task_id,
            names.STEP: command.step,
            names.TENANT: call.tenant,
        }
        hidden = hiding(partial(redact, redactions=command.redactions))
        with host.telemetry.activate(), bind(fields), hidden, under(call.traceparent):
            try:
                executed = workshop.executor.execute(
                    command,
                    task_id=call.task_id,
                    session_id=call.session_id,
                    tenant=call.tenant,
                    cancelled=called_off,
                )
            except Exception as error:  # noqa: BLE001 - it is raised where the call came from
                return KeptAnswer.of_error(error)
        return KeptAnswer(executed=executed)

    return carry_out


def keep(door: Door, service: int) -> int:
    """Serve until the service ends, or nothing is left to do; returns the exit code."""
    try:
        descriptor = os.pidfd_open(service)
    except ProcessLookupError:
        return 0
    if door.name != f"{service}-{started(service)}":
        return 0
    with door.owned() as mine:
        return _keep(door, descriptor) if mine else 0


def _keep(door: Door, service: int) -> int:
    try:
        host = open_host("tool-executor", Connections(), pool_size=POOL, settings=TelemetrySettings().for_child())
        host.started()
        preload(host.tools)
        workshop = open_workshop(host, ToolExecutorSettings(), keeps=True)
    except (SandboxUnavailable, CatalogueUnusable) as error:
        return refuse(str(error))
    if workshop.households is None:
        return refuse("LONGSTRIDE_TOOL_EXECUTOR_PROCESSES=0: no process is kept")
    failed = partial(_failed, workshop.parts)
    keeper = Keeper(door, carrying_out(host, workshop), workshop.households, failed=failed)
    signal.signal(signal.SIGTERM, lambda *_: keeper.stop())
    for part in workshop.parts:
        part.start()
    keeper.serve(door.listen(), service)
    for part in workshop.parts:
        part.stop(5.0)
    workshop.close()
    host.telemetry.shutdown()
    return 1 if failed() else 0


def _failed(parts: Sequence[Part]) -> bool:
    failed = next((part for part in parts if part.failure is not None), None)
    if failed:
        logger.critical("the keeper ends: %s cannot go on: %r", failed.name, failed.failure)
    return failed is not None


def main() -> int:
    """Two arguments: the folder of the socket, and the service's process id."""
    service = int(sys.argv[2])
    return keep(Door(Path(sys.argv[1]), service), service)


if __name__ == "__main__":
    sys.exit(main())
