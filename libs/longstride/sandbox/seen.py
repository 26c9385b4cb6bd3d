"""What is remembered of a file whose content is known, so that it need not be read again."""

import os
from dataclasses import dataclass

from longstride.sandbox.manifest import FileEntry

CLOCK_GRAIN_NS = 100_000_000
"""Times of files tick slowly. A file written this shortly before it was hashed may have been written again in the same tick."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A file as it was when its content was known."""

    inode: int
    ctime_ns: int
    """The kernel sets it at every change of the inode; no program can set it back."""
    known_ns: int
    """When the content was known, by the clock of the times."""
    entry: FileEntry

    def same(self, status: os.stat_result) -> bool:
        """Whether the inode is the one that was seen, unchanged."""
        entry = self.entry
        return (status.st_ino, status.st_ctime_ns, status.st_size, status.st_mtime_ns, status.st_mode & 0o777) == (
            self.inode,
            self.ctime_ns,
            entry.size,
            entry.mtime_ns,
            entry.mode,
        )

    def still(self, status: os.stat_result) -> bool:
        """Whether the content cannot have changed since, where every change shows in the times."""
        return self.same(status) and self.ctime_ns < self.known_ns - CLOCK_GRAIN_NS
