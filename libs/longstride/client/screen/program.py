"""What to type to run this program again."""

import shutil
import sys
from pathlib import Path

from longstride.client.working_directory import working_directory

NAME = "longstride"


def program() -> str:
    """``longstride`` where the shell finds this very one, else its path: ``.venv/bin/longstride``."""
    started = Path(sys.argv[0])
    if started.name != NAME:
        return NAME
    found = shutil.which(NAME)
    if found and Path(found).resolve() == started.resolve():
        return NAME
    here = working_directory()
    return relative(here / started) if here else str(started)


def relative(path: Path) -> str:
    """``path`` as seen from the current folder, where it lies below it."""
    here = working_directory()
    return str(path.relative_to(here)) if here and path.is_relative_to(here) else str(path)
