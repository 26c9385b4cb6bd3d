"""The tool-executor's composition root: ``python -m services.tool_executor.main``."""

import os
import sys
from pathlib import Path

from longstride.messaging.handling import check_handlers
from longstride.messaging.work import Worker
from longstride.observability.middleware import work_spans
from longstride.observability.wrong_settings import WRONG, told
from longstride.sandbox import backends
from longstride.sandbox.errors import SandboxUnavailable
from longstride.tools.keeper_link import Divided
from longstride.tools.mcp.register import preload
from services.host import Host, refuse
from services.jobs import Jobs, run_jobs
from services.tool_executor.handlers import ToolExecutor, handlers
from services.tool_executor.keeper_main import link as keeper_link
from services.tool_executor.settings import ToolExecutorSettings
from services.tool_executor.workshop import open_workshop


def make(host: Host, secrets_dir: Path | None = None, *, keeps: bool = False) -> Jobs:
    """What one process of a tool-executor carries out.

    Args:
        host: the process.
        secrets_dir: where secrets are when the settings do not say.
        keeps: whether all calls come to this process, so that it can keep tasks' processes running between them; else that
            is done by a process of its own, the keeper of the service.

    Raises:
        SandboxUnavailable: code cannot be isolated here, so none is run.
        CatalogueUnusable: what MCP servers need is not installed.
    """
    settings = ToolExecutorSettings()
    workshop = open_workshop(host, settings, secrets_dir, keeps=keeps)
    forwards = settings.processes > 0 and not keeps
    executor = Divided(workshop.executor, keeper_link(os.getppid()), host.tools.kept) if forwards else workshop.executor
    table = handlers(ToolExecutor(executor))
    check_handlers("tool-executor", table)
    spans = work_spans(host.telemetry, "tool-executor")
    backbone = host.backbone
    worker = Worker(table, backbone.leases, backbone.database, unsafe=host.tools.unsafe, middleware=(spans,))
    return Jobs(worker, {}, workshop.close, workshop.parts)


def main() -> int:
    """Refuse at once where nothing can be isolated, then work."""
    try:
        settings = ToolExecutorSettings()
        backends.make(settings.backend).close()
    except WRONG as error:
        return refuse(f"settings: {told(error)}")
    except SandboxUnavailable as error:
        return refuse(str(error))
    return run_jobs("tool-executor", settings.slots, make, prepare=lambda host: preload(host.tools))


if __name__ == "__main__":
    sys.exit(main())
