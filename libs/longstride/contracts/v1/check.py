"""Checks: how a task is known to be done."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from longstride.contracts.model import Contract
from longstride.contracts.most import Most
from longstride.contracts.v1.input_file import InputFile

CheckName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._ -]{0,63}$")]

Weight = Annotated[float, Field(ge=0), Most(1_000_000)]
"""Its share in the reward, beside those of the other checks."""


class CommandCheck(Contract):
    """Runs a shell command in the submitted workspace; exit code 0 passes."""

    kind: Literal["command"] = "command"
    name: CheckName = "command"
    run: Annotated[str, StringConstraints(min_length=1, max_length=8192)]
    """Run with ``/bin/sh -c``; the answer is in the file ``$LONGSTRIDE_ANSWER``. A last line ``score=0.5`` gives partial credit."""
    files: tuple[InputFile, ...] = ()
    """Put beside the workspace, in ``$LONGSTRIDE_CHECKS``, for the check alone: the agent never sees them."""
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 60.0
    weight: Weight = 1.0


class AnswerCheck(Contract):
    """Compares the submitted answer."""

    kind: Literal["answer"] = "answer"
    name: CheckName = "answer"
    equals: str | None = None
    """The expected answer; white space at both ends is ignored."""
    number: float | None = None
    """The expected number; the answer must parse as one within ``tolerance``."""
    tolerance: Annotated[float, Field(ge=0)] = 1e-6
    matches: str | None = None
    """A regular expression (Python's ``re``) that the whole answer must match."""
    weight: Weight = 1.0

    @model_validator(mode="after")
    def _one_expectation(self) -> "AnswerCheck":
        given = [name for name in ("equals", "number", "matches") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"an answer check takes one of equals, number, matches; got {given or 'none'}")
        return self


class FileCheck(Contract):
    """Compares a file of the submitted workspace."""

    kind: Literal["file"] = "file"
    name: CheckName = "file"
    path: Annotated[str, StringConstraints(min_length=1, max_length=255)]
    equals: str
    """The expected text; line ends and trailing white space at the end of the file are ignored."""
    weight: Weight = 1.0


Check = Annotated[CommandCheck | AnswerCheck | FileCheck, Field(discriminator="kind")]
