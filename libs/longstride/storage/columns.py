"""The columns of a frozen dataclass that mirrors a table, in its fields' order."""

from dataclasses import fields
from typing import Any


def columns(shape: type[Any], prefix: str = "") -> str:
    """``columns(Lease)`` → ``"task_id, step, …"``: what ``shape(*row)`` takes."""
    return ", ".join(prefix + field.name for field in fields(shape))
