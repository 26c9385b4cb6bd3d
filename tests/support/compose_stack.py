"""The compose stack from outside: its published ports, and `docker compose` itself."""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import uuid4

import pika

from longstride.storage.database import Database
from longstride.storage.minio_artifacts import MinioArtifacts
from longstride.storage.steps import StepSummary
from longstride.storage.tasks import TaskHead
from tests.support.servers import Servers

SERVICES = ("planner", "model-worker", "tool-executor", "trainer", "telemetry")
COMMAND = "LONGSTRIDE_COMPOSE"
"""The variable that holds the command line of `docker compose` for this stack."""


@dataclass(frozen=True)
class ComposeStack:
    """A running stack."""

    servers: Servers

    def compose(self, *arguments: str, stdin: str = "", timeout_s: float = 120) -> str:
        """Run `docker compose`; returns what it printed."""
        done = subprocess.run(
            [*shlex.split(os.environ[COMMAND]), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def shell(self, service: str, script: str) -> str:
        """Run a script in a service's container."""
        return self.compose("exec", "--no-TTY", service, "sh", stdin=script)

    def kill(self, service: str) -> None:
        """SIGKILL to all of a container."""
        self.compose("kill", service)

    def up(self, service: str) -> None:
        """Start a service again, and wait until it is well."""
        self.compose("up", "--detach", "--wait", "--no-build", "--no-recreate", "--no-deps", service)

    @cached_property
    def artifacts(self) -> MinioArtifacts:
        """The stack's own bucket."""
        found = self.servers
        return MinioArtifacts(found.s3_endpoint, found.access_key, found.secret_key, found.bucket)

    @contextmanager
    def database(self) -> Iterator[Database]:
        """The stack's own database."""
        database = Database(self.servers.database_url, application_name="test")
        try:
            yield database
        finally:
            database.close()

    def head(self, task_id: str) -> TaskHead | None:
        """The task's head."""
        with self.database() as database, database.begin() as uow:
            return uow.tasks.head(task_id, lock=False)

    def steps(self, task_id: str) -> list[StepSummary]:
        """The task's steps."""
        with self.database() as database, database.begin() as uow:
            return uow.steps.for_task(task_id)


class Stranger:
    """A program that knows JSON and AMQP, and nothing of ours: publishes a task, and reads what comes back."""

    def __init__(self, servers: Servers) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(servers.amqp_url))
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()
        self._replies = self._channel.queue_declare("", exclusive=True).method.queue

    def __enter__(self) -> "Stranger":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def publish(self, task: Mapping[str, Any]) -> None:
        """Returns when the broker has it."""
        message = {"message_id": uuid4().hex, "type": "submit_task", "body": task}
        properties = pika.BasicProperties(reply_to=self._replies, correlation_id="mine", delivery_mode=2)
        self._channel.basic_publish("longstride", "submit_task", json.dumps(message), properties, mandatory=True)

    def next(self, timeout_s: float = 60) -> dict[str, Any]:
        """The next message of the reply queue."""
        for method, properties, body in self._channel.consume(
            self._replies, auto_ack=True, inactivity_timeout=timeout_s
        ):
            assert method is not None, f"no answer within {timeout_s:g} s"
            assert properties.correlation_id == "mine"
            answer: dict[str, Any] = json.loads(body)
            return answer
        raise AssertionError("the reply queue is gone")
