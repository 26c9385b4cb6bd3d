"""The base of every shape that crosses a process boundary."""

from pydantic import BaseModel, ConfigDict


class Contract(BaseModel):
    """A frozen, closed pydantic model: unknown fields are errors, and field docstrings become schema text."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)
