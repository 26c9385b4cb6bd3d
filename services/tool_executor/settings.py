"""How a tool-executor works."""

import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from longstride.sandbox.backends import DEFAULT, BackendName


class ToolExecutorSettings(BaseSettings):
    """``LONGSTRIDE_TOOL_EXECUTOR_…``"""

    model_config = SettingsConfigDict(
        env_prefix="LONGSTRIDE_TOOL_EXECUTOR_", env_ignore_empty=True, use_attribute_docstrings=True, frozen=True
    )

    backend: BackendName = DEFAULT
    """What isolates code: ``bubblewrap``, ``runc``, ``runsc``, ``docker``, ``docker-runsc`` or ``kubernetes``. Those with
    ``runsc`` give the isolation ``gvisor``; what ``kubernetes`` gives, its pool's RuntimeClass says (``LONGSTRIDE_KUBERNETES_…``)."""
    slots: Annotated[int, Field(gt=0, le=256)] = 2
    """Actions at a time; each has a process of its own."""
    max_live: Annotated[int, Field(gt=0)] = 16
    """Workspaces that stay laid out as a cache, a process."""
    max_live_mb: Annotated[int, Field(gt=0)] = 512
    """MiB that they may hold together. A workspace that is larger by itself is restored for each call."""
    secrets_dir: Path | None = None
    """``<tenant>/<name>``: the values of the secrets that tasks name. ``None``: there are none."""
    pool_floor: Annotated[int, Field(ge=0, le=1024)] = 1
    """Sandboxes that wait for the next call even when none was made for long, a process."""
    pool_ceiling: Annotated[int, Field(ge=0, le=1024)] = 8
    """Sandboxes that wait at the most, a process: as many as were in use at once of late."""
    pool_idle_s: Annotated[float, Field(gt=0)] = 60.0
    """Seconds for which a burst is remembered."""
    processes: Annotated[int, Field(ge=0, le=1024)] = 32
    """Processes that tasks keep running between their calls, all tasks together."""
    processes_per_task: Annotated[int, Field(gt=0, le=64)] = 4
    """Of one task."""
    process_wall_s: Annotated[float, Field(gt=0, le=7 * 86_400)] = 3600.0
    """Seconds that one of them may live."""
    process_cpu_s: Annotated[float, Field(gt=0)] = 600.0
    """CPU seconds of one of them."""

    package_index: SecretStr | None = None
    """``https://HOST/simple``: where ``install_packages`` gets Python packages, wherever it is; it may hold a user and a password.
    ``None``: nowhere."""
    package_cache_dir: Path | None = None
    """Where this host keeps their files; ``None``: ``packages`` in the state folder."""
    package_cache_mb: Annotated[int, Field(gt=0)] = 2048
    """MiB that they may hold; those that nobody used for longest go first."""

    @field_validator("package_index")
    @classmethod
    def _is_web_address(cls, index: SecretStr | None) -> SecretStr | None:
        if index is not None and not re.fullmatch(r"https?://[^/?#\s]+(/[^?#\s]*)?", index.get_secret_value()):
            raise ValueError("must be http:// or https:// with a host and a path, e.g. https://pypi.org/simple")
        return index

    @model_validator(mode="after")
    def _floor_below_ceiling(self) -> Self:
        if self.pool_floor > self.pool_ceiling:
            raise ValueError(f"pool_floor={self.pool_floor} is above pool_ceiling={self.pool_ceiling}")
        return self
