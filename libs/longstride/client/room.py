"""Whether a disk has room for an embedded stack."""

import shutil
from dataclasses import dataclass
from pathlib import Path

FIRST_MB = 128
"""MiB for a new one: its database takes 48, its log of changes some more as soon as tasks run."""
AGAIN_MB = 32
"""MiB for one that has run: two segments of the database's log of changes."""


@dataclass(frozen=True, slots=True)
class Room:
    """Of the disk that a home lies on, or will."""

    home: Path
    free_mb: int
    needed_mb: int
    """For a start."""

    @classmethod
    def of(cls, home: Path) -> "Room":
        """As it is now; the folder need not be there yet."""
        there = next(folder for folder in (home, *home.parents) if folder.exists())
        disk = shutil.disk_usage(there)
        first = not (home / "postgres" / "data" / "PG_VERSION").exists()
        needed = FIRST_MB if first else AGAIN_MB
        # A file system without a size, such as /proc, says nothing of room: it refuses the folder itself.
        return cls(home, disk.free // 1024**2 if disk.total else needed, needed)

    @property
    def told(self) -> str:
        """How much there is and how much a start takes."""
        first = "first " if self.needed_mb == FIRST_MB else ""
        return f"{self.free_mb:,} MiB are free on its disk, and a {first}start needs {self.needed_mb} MiB"

    @property
    def remedy(self) -> str:
        """What to do."""
        return "free some, or set LONGSTRIDE_HOME to a folder on another disk"
