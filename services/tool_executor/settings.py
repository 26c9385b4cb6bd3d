"""How a tool-executor works."""

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class ToolExecutorSettings(BaseSettings):
    """``LONGSTRIDE_TOOL_EXECUTOR_…``"""

    model_config = SettingsConfigDict(
        env_prefix="LONGSTRIDE_TOOL_EXECUTOR_", use_attribute_docstrings=True, frozen=True
    )

    slots: Annotated[int, Field(gt=0, le=256)] = 2
    """Actions at a time; each has a process of its own."""
    max_live: Annotated[int, Field(gt=0)] = 16
    """Workspaces that stay laid out as a cache, a process."""
    max_live_mb: Annotated[int, Field(gt=0)] = 512
    """MiB that they may hold together. A workspace that is larger by itself is restored for each call."""
    secrets_dir: Path | None = None
    """``<tenant>/<name>``: the values of the secrets that tasks name. ``None``: there are none."""
