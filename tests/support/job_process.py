"""A tool-executor of the tests, as a process: ``python -m tests.support.job_process DATABASE_URL AMQP_URL SLOTS TIME_LIMIT_S DRAIN_S``.

What a job does stands in the arguments of its action: ``sleep`` seconds, ``sleep_first`` in its first attempt alone,
``signal`` to itself. It writes ``<pid> <attempt>`` into the file ``note`` first.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

from longstride.contracts.envelope import Envelope
from longstride.contracts.v1.events import ActionExecuted
from longstride.messaging.backbone import Backbone
from longstride.messaging.celery_app import JobSettings
from longstride.messaging.come_back import COME_BACK_S
from longstride.messaging.job_runner import JobRunner
from longstride.messaging.job_worker import JobWorker
from longstride.messaging.lease import HeldLease
from longstride.messaging.work import Answer, Worker
from longstride.storage.database import Database


def execute(envelope: Envelope, message: Any, held: HeldLease) -> Answer | None:
    what = message.action.arguments
    if "note" in what:
        with Path(what["note"]).open("a") as note:
            note.write(f"{os.getpid()} {envelope.attempt}\n")
    if "signal" in what and envelope.attempt == 1:
        os.kill(os.getpid(), int(what["signal"]))
    sleep_s = what.get("sleep_first", 0) if envelope.attempt == 1 else 0
    if held.lost.wait(float(what.get("sleep", sleep_s))):
        return None
    return Answer(ActionExecuted(step=message.step))


def runner(database_url: str, amqp_url: str, shared: Backbone | None = None, **options: Any) -> JobRunner:
    backbone = shared or Backbone("tool-executor", database_url, amqp_url, relay_polls=False, pool_size=2)
    worker = Worker({"execute_action": execute}, backbone.leases, backbone.database)
    return JobRunner(backbone, worker, {"update_policy": update}, owns=shared is None, **options)


def update(envelope: Envelope, message: Any) -> None:
    """A plain job: its batch id says what it does, as an action's arguments do."""
    with Path(message.batch_id).open("a") as note:
        note.write(f"{os.getpid()}\n")
    if len(Path(message.batch_id).read_text().splitlines()) == 1 and "die" in message.policy:
        os.kill(os.getpid(), 9)
    if "fail" in message.policy:
        raise RuntimeError("no update")


def broken() -> JobRunner:
    """What a child needs, and cannot have."""
    raise RuntimeError("no sandbox can be made here")


def forfeit(database_url: str) -> Any:
    """The parent's reaction to a dead child: no need to wait for its presence to lapse."""
    database = Database(database_url, pool_size=1)

    def lost(message_id: str) -> None:
        with database.begin(durable=False) as uow:
            uow.attempts.forfeit_command(message_id)

    return lost


if __name__ == "__main__":
    database_url, amqp_url, slots, time_limit_s = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    settings = JobSettings(amqp_url, slots=slots, time_limit_s=time_limit_s, drain_s=float(sys.argv[5]))
    come_back_s = float(os.environ.get("COME_BACK_S", COME_BACK_S))
    ours = lambda: runner(database_url, amqp_url, come_back_s=come_back_s)  # noqa: E731
    make_runner = broken if "BROKEN_RUNNER" in os.environ else ours
    worker = JobWorker(settings, make_runner, forfeit(database_url))
    print("starting", flush=True)
    started = time.monotonic()
    code = worker.run()
    print(f"ended after {time.monotonic() - started:.1f} s", flush=True)
    sys.exit(code)
