"""Files that a task starts with."""

from pathlib import PurePosixPath
from typing import Annotated

from pydantic import StringConstraints, field_validator, model_validator

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.model import Contract


class InputFile(Contract):
    """A file laid into the workspace before the first step: its text inline, or a reference."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=255)]
    """Relative to the workspace; no ``..``."""
    text: str | None = None
    """The content, for small text files."""
    ref: ArtifactRef | None = None
    """The content, for anything else."""
    executable: bool = False
    """Whether it is a program, as its permission bits say."""

    @field_validator("path")
    @classmethod
    def _stays_inside(cls, path: str) -> str:
        parts = PurePosixPath(path)
        if parts.is_absolute() or ".." in parts.parts or "\x00" in path or str(parts) == ".":
            raise ValueError(f"{path!r} must be a relative path inside the workspace")
        return str(parts)

    @model_validator(mode="after")
    def _one_source(self) -> "InputFile":
        if (self.text is None) == (self.ref is None):
            raise ValueError(f"input {self.path!r} needs exactly one of text and ref")
        return self
