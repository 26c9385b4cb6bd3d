"""Where a task's packages are, and how its commands come to see them."""

import stat
from collections.abc import Sequence

from longstride.contracts.v1.environment import WORKSPACE
from longstride.sandbox.base import SUPPORT, Volume

FOLDER = ".packages"
"""In the workspace: so they are a part of each step's snapshot, and of every fork."""
PATH = f"{WORKSPACE}/{FOLDER}"
SEE = f'export PATH="{PATH}/bin:$PATH" PYTHONPATH="{PATH}${{PYTHONPATH:+:$PYTHONPATH}}" || exit; exec "$@"'
SEE_LAST = f'export PATH="$PATH:{PATH}/bin" PYTHONPATH="{SUPPORT}/site" || exit; exec "$@"'
LAST = {"site/sitecustomize.py": f"import sys\n\nsys.path.append({PATH!r})\n".encode()}
"""Files for ``seeing_last``."""


def installed(workspace: Volume) -> bool:
    """Whether a task has packages of its own, as far as the host can see: an agent may have closed its workspace."""
    try:
        return stat.S_ISDIR((workspace.path / FOLDER).lstat().st_mode)
    except (FileNotFoundError, PermissionError):
        return False


def seeing(argv: Sequence[str]) -> tuple[str, ...]:
    """A command of the agent's: its packages come before the host's."""
    return ("/bin/sh", "-c", SEE, "sh", *argv)


def seeing_last(argv: Sequence[str]) -> tuple[str, ...]:
    """A check's command: what the agent put there takes the place of nothing that the host has."""
    return ("/bin/sh", "-c", SEE_LAST, "sh", *argv)
