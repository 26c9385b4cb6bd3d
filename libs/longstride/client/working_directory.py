"""The directory that this program was started in; somebody may have removed it since."""

from pathlib import Path

REMOVED = "the current directory was removed: cd to one that is there"


def working_directory() -> Path | None:
    """``None``: it was removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def looked_in() -> str:
    """Where a relative path was looked for, as the end of a sentence about it."""
    here = working_directory()
    return f"looked in {here}" if here else REMOVED
