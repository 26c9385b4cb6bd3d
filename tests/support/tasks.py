"""Task heads for tests of storage."""

from itertools import count
from typing import Any

from longstride.storage.database import Database
from longstride.storage.tasks import TaskHead

_numbers = count(1)


def a_head(**changes: Any) -> TaskHead:
    """A head that nothing has happened to; ids sort in the order of making."""
    number = next(_numbers)
    plain: dict[str, Any] = {
        "id": f"task_{number:06d}",
        "session_id": f"ses_{number:06d}",
        "tenant": "default",
        "status": "queued",
        "version": 0,
        "instruction": "count the rows",
        "track": "fast",
    }
    return TaskHead(**{**plain, **changes})


def insert(database: Database, **changes: Any) -> str:
    """Commit a head; returns its id."""
    head = a_head(**changes)
    with database.begin() as uow:
        uow.tasks.insert(head)
    return head.id
