"""How a model-worker works."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class ModelWorkerSettings(BaseSettings):
    """``LONGSTRIDE_MODEL_WORKER_…``"""

    model_config = SettingsConfigDict(
        env_prefix="LONGSTRIDE_MODEL_WORKER_", use_attribute_docstrings=True, frozen=True, protected_namespaces=()
    )

    policy: str = "builtin"
    """Who answers when a task names no policy."""
    tracks: tuple[Literal["fast", "deep"], ...] = ("fast", "deep")
    """Which calls this deployment serves."""
    slots: Annotated[int, Field(gt=0, le=256)] = 4
    """Calls at a time, a track."""
    threads: Annotated[int, Field(gt=0)] = 1
    """Threads of one torch operation. On shared cores one is fastest."""
