"""How a tool-executor works."""

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
