"""How a planner works."""

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class PlannerSettings(BaseSettings):
    """``LONGSTRIDE_PLANNER_…``"""

    model_config = SettingsConfigDict(env_prefix="LONGSTRIDE_PLANNER_", use_attribute_docstrings=True, frozen=True)

    capacity: Annotated[int, Field(gt=0)] = 64
    """Tasks that may run at the same time, over all planners; more wait in the queue. The same for each planner."""
    slots: Annotated[int, Field(gt=0, le=64)] = 4
    """Transitions at a time in this process; a task has one at a time."""
