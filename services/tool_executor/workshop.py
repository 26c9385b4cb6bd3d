"""What carries actions out in one process: the sandboxes, the workspaces, the executor above them."""

import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from longstride.messaging.part import Part
from longstride.sandbox import backends
from longstride.sandbox import demand as pool_demand
from longstride.sandbox.pool import Pool
from longstride.sandbox.secrets import DirectorySecrets
from longstride.sandbox.workspace import Workspaces
from longstride.tools.executor import Executor
from longstride.tools.household import Bounds, Households
from longstride.tools.mcp.register import preload
from longstride.tools.packages.cache import PackageCache
from longstride.tools.packages.mirror import Mirror
from longstride.tools.packages.upstream import Upstream
from services.host import Host
from services.tool_executor.counted import Counted
from services.tool_executor.settings import ToolExecutorSettings
from services.tool_executor.task_watch import TaskWatch


@dataclass(frozen=True)
class Workshop:
    """Made after any fork, and closed by its maker."""

    executor: Executor
    households: Households | None
    """``None``: no process lives between calls here."""
    sandboxes: Pool
    parts: Sequence[Part]
    """What runs beside it."""

    def close(self) -> None:
        """Processes first: they live in the sandboxes."""
        if self.households:
            self.households.close()
        self.sandboxes.close()


def open_workshop(
    host: Host, settings: ToolExecutorSettings, secrets_dir: Path | None = None, *, keeps: bool
) -> Workshop:
    """
    Args:
        host: the process.
        settings: of the service.
        secrets_dir: where secrets are when the settings do not say.
        keeps: whether processes live between calls here: every call of their task then has to come to this process.

    Raises:
        SandboxUnavailable: code cannot be isolated here, so none is run.
        CatalogueUnusable: what MCP servers need is not installed.
    """
    preload(host.tools)
    _allow_open_files()
    bounds = pool_demand.Bounds(settings.pool_floor, settings.pool_ceiling, settings.pool_idle_s)
    sandboxes = Pool(backends.make(settings.backend), bounds, Counted(host.telemetry.metrics))
    live = {"max_live": settings.max_live, "max_live_bytes": settings.max_live_mb << 20}
    workspaces = Workspaces(host.artifacts, sandboxes.volumes, **live)
    households = Households(workspaces, _bounds(settings)) if keeps and settings.processes else None
    folder = settings.secrets_dir or secrets_dir
    secrets = DirectorySecrets(folder) if folder else None
    packages = _mirror(settings, host.connections.state_dir)
    executor = Executor(sandboxes, workspaces, host.artifacts, host.tools, secrets, packages, households)
    parts = (TaskWatch(households, host.backbone.database),) if households else ()
    return Workshop(executor, households, sandboxes, parts)


def _allow_open_files() -> None:
    """As many as this process may have: a sandbox takes a dozen descriptors, and the soft limit is often 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _bounds(settings: ToolExecutorSettings) -> Bounds:
    return Bounds(settings.process_wall_s, settings.process_cpu_s, settings.processes_per_task, settings.processes)


def _mirror(settings: ToolExecutorSettings, state: Path) -> Mirror | None:
    """The operator's package index, where there is one."""
    if settings.package_index is None:
        return None
    folder = settings.package_cache_dir or state / "packages"
    cache = PackageCache(folder, settings.package_cache_mb << 20)
    return Mirror(Upstream(settings.package_index.get_secret_value()), cache)
