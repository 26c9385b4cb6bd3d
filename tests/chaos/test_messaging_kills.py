"""kill -9 between any two things that others can see: every step happens once, and nothing is left behind."""

from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from longstride.messaging.backbone import Backbone
from longstride.messaging.outbox import Outbox
from tests.support.eventually import eventually
from tests.support.forks import Forked
from tests.support.messaging_fixtures import *  # noqa: F403
from tests.support.messaging_fixtures import prepare
from tests.support.pocket_planner import ended, history, submission
from tests.support.service_process import POINTS

STEPS = 8


class Supervised:
    """A process that is started again when it dies."""

    def __init__(self, running: ExitStack, output: Path, *arguments: str) -> None:
        self._output = output
        self._arguments = arguments
        self.starts = 0
        self._running = running
        self._start()

    def _start(self) -> None:
        self.starts += 1
        self.process = Forked("tests.support.service_process", *self._arguments, output=self._output)
        self._running.callback(self.process.wait, 30)
        self._running.callback(self.process.kill)
        eventually(lambda: self._output.read_text().count("ready\n") == self.starts)

    def revive(self) -> bool:
        if self.process.poll() is not None:
            assert self.process.returncode == -9, "only our own kill may end it"
            self._start()
        return True


def prove(backbone: Backbone, task: str) -> None:
    """The promises, from the database alone."""
    steps = [seen.get("step") for seen in history(backbone.database, task)]
    assert steps == [None, *range(1, STEPS + 1)], "each transition once, in order"
    with backbone.database.engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT step, status, count(*) FROM attempts GROUP BY 1, 2").all()
        settled = {step: number for step, status, number in rows if status == "settled"}
        assert {status for _, status, _ in rows} <= {"settled", "lost"}
        assert all(number == 1 for number in settled.values())
        assert connection.exec_driver_sql("SELECT count(*) FROM dead_letters").scalar_one() == 0

        def outbox() -> int:
            connection.rollback()
            return int(connection.exec_driver_sql("SELECT count(*) FROM outbox").scalar_one())

        eventually(lambda: outbox() == 0)


@pytest.mark.parametrize(("role", "point"), [(role, point) for role, points in POINTS.items() for point in points])
def test_a_service_killed_at_any_point_on_rabbitmq(
    database_url: str, amqp_url: str, running: ExitStack, tmp_path: Path, role: str, point: str
) -> None:
    prepare(amqp_url)
    backbone = Backbone("test", database_url, amqp_url)
    running.callback(backbone.close)
    mark = tmp_path / "killed"
    processes = [
        Supervised(running, tmp_path / f"{name}.log", database_url, amqp_url, name, str(STEPS), point, str(mark))
        for name in ("planner", "worker")
    ]
    envelope = submission()
    with backbone.database.begin() as uow:
        Outbox().post(uow, envelope)
    task = str(envelope.task_id)
    eventually(lambda: all(p.revive() for p in processes) and ended(backbone.database, task), timeout_s=90)
    assert mark.exists(), "the process was killed"
    assert sum(p.starts for p in processes) == 3
    prove(backbone, task)


@pytest.mark.parametrize("point", [point for points in POINTS.values() for point in points])
def test_the_embedded_stack_killed_at_any_point(
    database_url: str, running: ExitStack, tmp_path: Path, point: str
) -> None:
    url = f"memory://{uuid4().hex}"
    backbone = Backbone("test", database_url, url)
    running.callback(backbone.close)
    mark = tmp_path / "killed"
    log = tmp_path / "both.log"
    process = Supervised(running, log, database_url, url, "both", str(STEPS), point, str(mark))
    envelope = submission()
    with backbone.database.begin() as uow:
        Outbox().post(uow, envelope)
    task = str(envelope.task_id)
    eventually(lambda: process.revive() and ended(backbone.database, task))
    assert process.starts == 2
    prove(backbone, task)
