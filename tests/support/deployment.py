"""The services as processes of their own against real servers: what `docker compose up` runs, without the images."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from longstride.contracts.envelope import seal
from longstride.contracts.ids import new_id
from longstride.contracts.v1.commands import SubmitTask
from longstride.messaging.outbox import Outbox
from longstride.storage.database import Database
from longstride.storage.steps import StepSummary
from longstride.storage.tasks import TaskHead
from tests.support.eventually import eventually
from tests.support.forks import Forked
from tests.support.servers import Servers

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
MODULES = {
    "planner": "services.planner.main",
    "tool-executor": "services.tool_executor.main",
    "model-worker": "services.model_worker.main",
    "telemetry": "services.telemetry.main",
    "trainer": "services.model_worker.trainer_main",
}
LINES_AND_SUBMIT = [
    {"tool": "shell", "arguments": {"command": "wc -l nope.csv"}},
    {"tool": "shell", "arguments": {"command": "wc -l < a.csv"}},
    {"tool": "submit", "arguments": {"answer": "3"}},
]
"""Needs a self-correction: the first call fails."""


class Deployment:
    """Service processes with a database, a virtual host and a bucket of their own."""

    def __init__(
        self, servers: Servers, database_url: str, amqp_url: str, bucket: str, folder: Path, *, forked: bool = False
    ) -> None:
        """``forked``: its processes load nothing, see ``forks``."""
        self.folder = folder
        self.database = Database(database_url, application_name="test")
        self.amqp_url = amqp_url
        self.environment = {
            **os.environ,
            "LONGSTRIDE_DATABASE_URL": database_url,
            "LONGSTRIDE_AMQP_URL": amqp_url,
            "LONGSTRIDE_S3_ENDPOINT": servers.s3_endpoint,
            "LONGSTRIDE_S3_ACCESS_KEY": servers.access_key,
            "LONGSTRIDE_S3_SECRET_KEY": servers.secret_key,
            "LONGSTRIDE_S3_BUCKET": bucket,
            "LONGSTRIDE_STATE_DIR": str(folder / "state"),
            "LONGSTRIDE_LOG_FORMAT": "human",
        }
        self._forked = forked
        self.processes: dict[str, subprocess.Popen[bytes] | Forked] = {}

    def start(self, *services: str, **variables: str) -> None:
        """Start services, all but the trainer by default, with further environment ``variables``."""
        for service in services or ("planner", "tool-executor", "model-worker", "telemetry"):
            self._spawn(service, [MODULES[service]], variables)

    def start_doomed(self, service: str, message_type: str, point: str, **variables: str) -> None:
        """Start a service that kills itself at ``point`` of the first message of a type; see ``doomed_service``."""
        marker = self.folder / new_id("marker")
        arguments = ["tests.support.doomed_service", MODULES[service], message_type, point, str(marker)]
        self._spawn(service, arguments, variables)

    def await_death(self, service: str, timeout_s: float = 60) -> None:
        """Wait until a doomed service has killed itself."""
        try:
            assert self.processes[service].wait(timeout_s) == -signal.SIGKILL, self.logs()
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{service} lives\n{self.logs()}") from None
        del self.processes[service]

    def _spawn(self, service: str, arguments: Sequence[str], variables: Mapping[str, str]) -> None:
        environment, output = {**self.environment, **variables}, self.folder / f"{service}.log"
        if self._forked:
            self.processes[service] = Forked(*arguments, output=output, environment=environment)
            return
        with output.open("ab") as log:
            self.processes[service] = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                env=environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=ROOT,
            )

    def eventually(self, condition: Callable[[], T], timeout_s: float) -> T:
        """As ``eventually.eventually``; where it does not come true, with what every service logged."""
        try:
            return eventually(condition, timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    def kill(self, service: str) -> None:
        """kill -9 of a service and of the children it made."""
        process = self.processes.pop(service)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)

    def terminate(self, service: str, timeout_s: float = 30) -> int:
        """SIGTERM; returns the exit code."""
        process = self.processes.pop(service)
        process.send_signal(signal.SIGTERM)
        return process.wait(timeout_s)

    def stop(self) -> None:
        """End every service, the hard way where the soft one takes too long."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 30
        for process in self.processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(30)
        self.processes.clear()
        self.database.close()

    def script(self, lines: Sequence[Mapping[str, Any]], **fields: Any) -> str:
        """The name of a policy that says ``lines``."""
        path = self.folder / f"{new_id('script')}.json"
        path.write_text(json.dumps({"version": 1, "lines": lines, **fields}))
        return f"scripted:{path}"

    def submit(self, submit: SubmitTask, **envelope: Any) -> str:
        """Publish a task by way of the outbox, once the schema is there; returns its id."""
        sealed = seal(submit, **{"task_id": new_id("task"), **envelope})
        eventually(lambda: self._post(sealed))
        assert sealed.task_id is not None
        return sealed.task_id

    def send(self, message: Any, task_id: str) -> None:
        """Send a command about a task."""
        self._post(seal(message, task_id=task_id))

    def _post(self, envelope: Any) -> bool:
        with self.database.begin() as uow:
            Outbox().post(uow, envelope)
        return True

    def head(self, task_id: str) -> TaskHead | None:
        """The task's head."""
        with self.database.begin() as uow:
            return uow.tasks.head(task_id, lock=False)

    def ended(self, *task_ids: str, timeout_s: float = 60) -> list[TaskHead]:
        """The heads of tasks, once all of them have ended."""

        def all_ended() -> list[TaskHead] | None:
            with self.database.begin() as uow:
                heads = [uow.tasks.head(task_id, lock=False) for task_id in task_ids]
            return [h for h in heads if h] if all(h and h.outcome for h in heads) else None

        return self.eventually(all_ended, timeout_s) or []

    def steps(self, task_id: str) -> list[StepSummary]:
        """The task's steps."""
        with self.database.begin() as uow:
            return uow.steps.for_task(task_id)

    def logs(self, lines: int = 15) -> str:
        """The ends of the services' logs."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"--- {log.name}\n" + "\n".join(log.read_text().splitlines()[-lines:]) for log in logs)


@contextmanager
def deployed(
    servers: Servers,
    database_url: str,
    amqp_url: str,
    bucket: str,
    folder: Path,
    *services: str,
    forked: bool = False,
    **variables: str,
) -> Iterator[Deployment]:
    """A deployment for the time of a ``with`` block."""
    deployment = Deployment(servers, database_url, amqp_url, bucket, folder, forked=forked)
    try:
        deployment.start(*services, **variables)
        yield deployment
    finally:
        deployment.stop()
