"""Which host ids sandboxed code runs under.

Each workspace of a root executor gets ids of its own: kernel limits that are counted per user (inotify, keys, locked memory)
are then not shared between sandboxes, and no file of one can be opened by another.
"""

import os
import random
from pathlib import Path

from longstride.sandbox.base import Owner

FIRST, COUNT = 1_900_000_000, 1 << 24
"""Above the ranges that distributions, systemd and container engines hand out (systemd's UIDS-GIDS document)."""
OVERFLOW = 65_534


class Identities:
    """Draws owners; ``None`` where this process cannot change ids."""

    def __init__(self, uid_map: str | None = None, *, privileged: bool | None = None) -> None:
        text = Path("/proc/self/uid_map").read_text() if uid_map is None else uid_map
        self._privileged = os.geteuid() == 0 if privileged is None else privileged
        self._first, self._count = _range(text)
        self._random = random.SystemRandom()

    @property
    def separate(self) -> bool:
        """Whether two workspaces have different ids."""
        return self._privileged and self._count > 1

    def draw(self) -> Owner | None:
        """Ids for one workspace."""
        if not self._privileged:
            return None
        number = self._first + self._random.randrange(self._count)
        return Owner(number, number)


def _range(uid_map: str) -> tuple[int, int]:
    """(first, count) of the ids to draw from; a user namespace may not map the high ones."""
    for line in uid_map.splitlines():
        inside, _, length = (int(word) for word in line.split())
        if inside <= FIRST and inside + length >= FIRST + COUNT:
            return FIRST, COUNT
    return OVERFLOW, 1
