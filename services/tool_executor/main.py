"""The tool-executor's composition root: ``python -m services.tool_executor.main``."""

import sys
from pathlib import Path

from longstride.messaging.handling import check_handlers
from longstride.messaging.work import Worker
from longstride.observability.middleware import work_spans
from longstride.sandbox import backends
from longstride.sandbox.demand import Bounds
from longstride.sandbox.errors import SandboxUnavailable
from longstride.sandbox.pool import Pool
from longstride.sandbox.secrets import DirectorySecrets
from longstride.sandbox.workspace import Workspaces
from longstride.tools.executor import Executor
from longstride.tools.mcp.register import preload
from longstride.tools.packages.cache import PackageCache
from longstride.tools.packages.mirror import Mirror
from longstride.tools.packages.upstream import Upstream
from services.host import Host, refuse
from services.jobs import Jobs, run_jobs
from services.tool_executor.counted import Counted
from services.tool_executor.handlers import ToolExecutor, handlers
from services.tool_executor.settings import ToolExecutorSettings


def make(host: Host, secrets_dir: Path | None = None) -> Jobs:
    """What one process of a tool-executor carries out.

    Args:
        host: the process.
        secrets_dir: where secrets are when the settings do not say.

    Raises:
        SandboxUnavailable: code cannot be isolated here, so none is run.
        CatalogueUnusable: what MCP servers need is not installed.
    """
    settings = ToolExecutorSettings()
    preload(host.tools)
    bounds = Bounds(settings.pool_floor, settings.pool_ceiling, settings.pool_idle_s)
    sandbox = Pool(backends.make(settings.backend), bounds, Counted(host.telemetry.metrics))
    live = {"max_live": settings.max_live, "max_live_bytes": settings.max_live_mb << 20}
    workspaces = Workspaces(host.artifacts, sandbox.volumes, **live)
    folder = settings.secrets_dir or secrets_dir
    secrets = DirectorySecrets(folder) if folder else None
    packages = mirror(settings, host.connections.state_dir)
    table = handlers(ToolExecutor(Executor(sandbox, workspaces, host.artifacts, host.tools, secrets, packages)))
    check_handlers("tool-executor", table)
    spans = work_spans(host.telemetry, "tool-executor")
    backbone = host.backbone
    worker = Worker(table, backbone.leases, backbone.database, unsafe=host.tools.unsafe, middleware=(spans,))
    return Jobs(worker, {}, sandbox.close)


def mirror(settings: ToolExecutorSettings, state: Path) -> Mirror | None:
    """The operator's package index, where there is one."""
    if settings.package_index is None:
        return None
    folder = settings.package_cache_dir or state / "packages"
    cache = PackageCache(folder, settings.package_cache_mb << 20)
    return Mirror(Upstream(settings.package_index.get_secret_value()), cache)


def main() -> int:
    """Refuse at once where nothing can be isolated, then work."""
    settings = ToolExecutorSettings()
    try:
        backends.make(settings.backend).close()
    except SandboxUnavailable as error:
        return refuse(str(error))
    return run_jobs("tool-executor", settings.slots, make, prepare=lambda host: preload(host.tools))


if __name__ == "__main__":
    sys.exit(main())
