"""How telemetry works."""

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class RecorderSettings(BaseSettings):
    """``LONGSTRIDE_TELEMETRY_…``"""

    model_config = SettingsConfigDict(env_prefix="LONGSTRIDE_TELEMETRY_", use_attribute_docstrings=True, frozen=True)

    update_groups: Annotated[int, Field(ge=0)] = 0
    """Ask for a policy update as soon as so many groups of rollouts have a signal; 0: only people ask."""
    slots: Annotated[int, Field(gt=0, le=64)] = 1
    """Messages at a time."""
    orphans_after_h: Annotated[float, Field(ge=3)] = 24.0
    """Hours after which an object that nothing refers to is removed."""
    keep_spans_days: Annotated[float, Field(gt=0)] = 30.0
    """Days that the span store remembers."""
