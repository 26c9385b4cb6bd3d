"""What to type to run this program again."""

import shutil
import sys
from pathlib import Path

NAME = "longstride"


def program() -> str:
    """``longstride`` where the shell finds this very one, else its path: ``.venv/bin/longstride``."""
    started = Path(sys.argv[0])
    if started.name != NAME:
        return NAME
    found = shutil.which(NAME)
    if found and Path(found).resolve() == started.resolve():
        return NAME
    return relative(started.absolute())


def relative(path: Path) -> str:
    """``path`` as seen from the current folder, where it lies below it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
