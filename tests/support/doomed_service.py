"""A service that kills itself, children and all, at a named point of one message: ``python -m tests.support.doomed_service``.

Arguments: the service's module, the message's type, the point, a marker file. It dies once: a process that finds the marker lives.

The points of a message, in the order in which its handling passes them, where N counts the transactions of its thread:
``arrived``, then for each N ``before-N`` (all is written, nothing committed), ``after-N`` (committed, nothing published) and
``published-N`` (handed to the broker).
"""

import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from longstride.contracts.envelope import decode
from longstride.messaging.dispatch import Dispatcher
from longstride.messaging.job_runner import JobRunner
from longstride.messaging.work import Worker
from longstride.storage.database import Database
from longstride.storage.unit_of_work import UnitOfWork


class Doom(threading.local):
    """Which message this thread handles, and how many transactions it has begun for it."""

    handling = False
    transactions = 0


class Fate:
    """When to die."""

    def __init__(self, message_type: str, point: str, marker: Path) -> None:
        self.message_type = message_type
        self.point = point
        self.marker = marker
        self.doom = Doom()

    def reach(self, point: str) -> None:
        if not self.doom.handling or point != self.point:
            return
        try:
            self.marker.touch(exist_ok=False)
        except FileExistsError:
            return
        os.killpg(0, signal.SIGKILL)

    @contextmanager
    def handling(self, wire: bytes) -> Iterator[None]:
        self.doom.handling = decode(wire).type == self.message_type
        self.doom.transactions = 0
        self.reach("arrived")
        try:
            yield
        finally:
            self.doom.handling = False


def seal_fate(fate: Fate) -> None:
    """Have the library's own methods pass the points."""
    watch(Dispatcher, "__call__", lambda args: args[0].body, fate)
    watch(Worker, "__call__", lambda args: args[0].body, fate)
    watch(JobRunner, "run", lambda args: args[1].encode(), fate)
    begin, committed = Database.begin, UnitOfWork.committed

    @contextmanager
    def doomed_begin(self: Database, **options: Any) -> Iterator[UnitOfWork]:
        fate.doom.transactions += 1
        number = fate.doom.transactions
        with begin(self, **options) as uow:
            yield uow
            uow.flush()
            fate.reach(f"before-{number}")

    def doomed_committed(self: UnitOfWork) -> None:
        number = fate.doom.transactions
        fate.reach(f"after-{number}")
        committed(self)
        fate.reach(f"published-{number}")

    Database.begin = doomed_begin  # type: ignore[method-assign]
    UnitOfWork.committed = doomed_committed  # type: ignore[method-assign]


def watch(kind: type, name: str, wire_of: Callable[[tuple[Any, ...]], bytes], fate: Fate) -> None:
    original = getattr(kind, name)

    def watched(self: Any, *args: Any) -> Any:
        with fate.handling(wire_of(args)):
            return original(self, *args)

    setattr(kind, name, watched)


if __name__ == "__main__":
    module, message_type, point, marker = sys.argv[1:]
    seal_fate(Fate(message_type, point, Path(marker)))
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
