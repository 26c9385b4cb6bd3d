"""Longstride as a contender: the full stack's service processes, and the embedded stack's one."""

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from longstride.client.embedded_stack import EmbeddedStack
from longstride.contracts.envelope import Envelope, seal
from longstride.contracts.ids import new_id
from longstride.contracts.v1.commands import SubmitTask
from longstride.contracts.v1.limits import Limits
from longstride.messaging.outbox import Outbox
from longstride.storage import migrations
from longstride.storage.database import Database
from tests.benchmarks.lap import Lap
from tests.support import servers as under_test
from tests.support.deployment import deployed
from tests.support.servers import Servers

PATIENCE_S = 300.0


class Longstride:
    """A stack that runs. Tasks come in through its outbox, as the command line's do."""

    def __init__(self, name: str, database: Database, folder: Path) -> None:
        self.name = name
        self._database = database
        self._folder = folder

    def run(self, steps: int, tasks: int) -> Lap:
        """Tasks of ``steps`` calls of ``noop`` and a submission, which gives the last of those calls an end."""
        submits = [self._submission(steps) for _ in range(tasks)]
        begun = time.time()
        with self._database.begin() as uow:
            for submit in submits:
                Outbox().post(uow, submit)
        ends = [self._end(str(submit.task_id)) for submit in submits]
        cycles = [cycle for submit in submits for cycle in self._cycles(str(submit.task_id))]
        assert len(cycles) == steps * tasks, f"{len(cycles)} steps, not {steps * tasks}"
        return Lap(cycles, max(ends) - begun)

    def _submission(self, steps: int) -> Envelope:
        lines = [{"tool": "noop", "arguments": {"turn": turn}} for turn in range(1, steps + 1)]
        script = self._folder / f"{steps}.json"
        script.write_text(
            json.dumps({"version": 1, "lines": [*lines, {"tool": "submit", "arguments": {"answer": ""}}]})
        )
        submit = SubmitTask(
            instruction=f"Do nothing, {steps} times.",
            policy=f"scripted:{script}",
            tools=("noop", "submit"),
            limits=Limits(steps=steps + 1, tokens=10**9),
        )
        return seal(submit, task_id=new_id("task"))

    def _end(self, task_id: str) -> float:
        """Unix seconds at which the task ended, once it has."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with self._database.begin() as uow:
                head = uow.tasks.head(task_id, lock=False)
            if head and head.ended_at:
                assert head.outcome == "succeeded", f"{self.name}: {task_id} {head.outcome}: {head.reason}"
                return head.ended_at.timestamp()
            time.sleep(0.05)
        raise TimeoutError(f"{self.name}: {task_id} has not ended after {PATIENCE_S:g} s")

    def _cycles(self, task_id: str) -> list[float]:
        with self._database.begin() as uow:
            stored = uow.events.read(task_id)
        starts = [datetime.fromisoformat(e.payload["at"]).timestamp() for e in stored if e.type == "step_started"]
        return [after - before for before, after in pairwise(starts)]


@contextmanager
def full_stack(servers: Servers) -> Iterator[Longstride]:
    """Five service processes on RabbitMQ, PostgreSQL and S3."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="longstride-bench-")))
        database_url = stack.enter_context(under_test.database(servers))
        migrations.upgrade(database_url)
        amqp_url = stack.enter_context(under_test.virtual_host(servers))
        bucket = stack.enter_context(under_test.bucket(servers))
        services = ("planner", "tool-executor", "model-worker", "telemetry", "trainer")
        running = stack.enter_context(deployed(servers, database_url, amqp_url, bucket, folder, *services))
        yield Longstride("full stack", running.database, folder)


@contextmanager
def embedded_stack() -> Iterator[Longstride]:
    """One process, with the PostgreSQL of its own."""
    home = Path(tempfile.mkdtemp(prefix="longstride-bench-"))
    embedded = EmbeddedStack(home)
    try:
        database = Database(embedded.up(lambda _: None).database_url, application_name="bench")
        try:
            yield Longstride("embedded stack", database, home)
        finally:
            database.close()
            embedded.down()
    finally:
        shutil.rmtree(home, ignore_errors=True)
