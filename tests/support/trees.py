"""What lies below a directory, to compare it with another."""

# Names are bytes here, and descriptors are opened: pathlib knows neither.
# ruff: noqa: PTH115, PTH118, PTH123

import os
import stat
from pathlib import Path


def tree(path: Path) -> dict[str, object]:
    """Everything below a directory: types, modes, times, contents."""
    found: dict[str, object] = {}
    for folder, folders, files in os.walk(os.fsencode(path)):
        for name in [*folders, *files]:
            entry = os.path.join(folder, name)
            status = os.lstat(entry)
            key = os.path.relpath(entry, os.fsencode(path)).decode(errors="backslashreplace")
            if stat.S_ISLNK(status.st_mode):
                found[key] = os.readlink(entry)
            elif stat.S_ISDIR(status.st_mode):
                found[key] = stat.S_IMODE(status.st_mode)
            else:
                with open(entry, "rb") as file:
                    found[key] = (stat.S_IMODE(status.st_mode), status.st_mtime_ns, file.read())
    return found
