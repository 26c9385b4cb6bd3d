"""What a task's sandboxes show beside the workspace."""

from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

from longstride.contracts.model import Contract

WORKSPACE = "/workspace"
"""Where a sandbox's code finds its workspace; also its working directory, unless it is told another."""
RESERVED = (
    "bin",
    "dev",
    "etc",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "proc",
    "run",
    "sbin",
    "sys",
    "tmp",
    "usr",
    "workspace",
)
"""Top-level places that a sandbox fills itself."""


def placed(path: str) -> str:
    """An absolute path at which a sandbox may show something.

    Raises:
        ValueError: relative, leading up, or in a place that a sandbox fills itself.
    """
    pure = PurePosixPath(path)
    if not pure.is_absolute() or ".." in pure.parts or "\x00" in path or len(pure.parts) < 2:
        raise ValueError(f"{path!r} must be an absolute path without '..'")
    if pure.parts[1] in RESERVED:
        raise ValueError(f"{path!r} lies in /{pure.parts[1]}, which a sandbox fills itself")
    if pure.parts[1:3] in (("var", "run"), ("var", "tmp")):
        raise ValueError(f"{path!r} lies in /var/{pure.parts[2]}, which a sandbox fills itself")
    return str(pure)


def _target(path: str) -> str:
    if not path.startswith("/") or ".." in PurePosixPath(path).parts or "\x00" in path:
        raise ValueError(f"{path!r} must be an absolute path without '..'")
    return str(PurePosixPath(path))


Place = Annotated[str, StringConstraints(max_length=255), AfterValidator(placed)]
Target = Annotated[str, StringConstraints(max_length=255), AfterValidator(_target)]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=255)]
VariableValue = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=8192)]


class Environment(Contract):
    """For tasks that were written for a container: their paths, and their variables."""

    variables: dict[VariableName, VariableValue] = {}
    """Added to a sandbox's own environment. Not for secrets: they are a part of the task."""
    links: dict[Place, Target] = {}
    """Symbolic links, path → target: ``{"/app": "/workspace"}`` shows the workspace at ``/app``, too."""
