"""The base of every shape that crosses a process boundary."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Contract(BaseModel):
    """A frozen, closed pydantic model: unknown fields are errors, and field docstrings become schema text."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


def storable(value: Any) -> Any:
    """``value`` with every NUL and lone surrogate in its strings replaced by U+FFFD: neither UTF-8 nor JSONB can hold them.

    Agents print such bytes; what people send with them is refused in ``envelope.decode`` instead.
    """
    if isinstance(value, str):
        whole = value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return whole.replace("\x00", "\ufffd")
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(storable, value))
    return value


Text = Annotated[str, BeforeValidator(storable)]
"""Text from an agent, a tool or a model: anything goes in, and what comes out can be stored."""
