"""The process that owns the servers: starts them, restarts one on request, takes all down when it or its owner ends."""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from infra.native import control, postgres, rabbitmq, seaweedfs
from infra.native.addresses import Addresses
from infra.native.errors import StackError
from infra.native.events import Events, Stopped, ignore_ending
from infra.native.linux import adopt_orphans
from infra.native.ports import Ports
from infra.native.running import Running
from infra.native.server import tail

READY_SECONDS = 120
"""A first boot takes 3 to 10 seconds on an idle machine; this is for one that others load heavily."""


class Supervisor:
    """Single-threaded on purpose: the kernel ties a child's life to the thread that made it."""

    def __init__(self, folder: Path, report: TextIO, owner: int | None = None, discard: bool = False) -> None:
        """
        Args:
            folder: where everything of this stack lies, mode 0700.
            report: takes JSON lines of progress: ``said``, ``failed``, ``ready``.
            owner: pid of the process whose end is ours too; None for a stack that stays.
            discard: kill the servers rather than stop them, and remove the folder at the end.
        """
        self._folder = folder
        self._report: TextIO | None = report
        self._owner = owner
        self._discard = discard
        self._asked_to_end = self._gave_up = False
        self._servers: dict[str, Running] = {}
        self._operations: dict[str, Callable[..., Any]] = {
            "status": self._status,
            "kill": self._kill,
            "start": self._start,
            "restart": self._restart,
            "down": self._down,
        }

    def run(self) -> None:
        """Start the servers, serve requests until told to end, and stop the servers however that ends."""
        adopt_orphans()
        try:
            self._events = Events(self._owner, self._reap)
            self._start_all()
            self._serve()
        except Stopped as reason:
            self._log(f"stopping: {reason}")
        except StackError as error:
            self._gave_up = True
            self._log(f"giving up: {error}")
            self._tell(failed=str(error))
        finally:
            ignore_ending()
            self._stop_all()
        if self._discard:  # Not after an unforeseen error: then the logs are worth having.
            shutil.rmtree(self._folder)

    def _start_all(self) -> None:
        self._ports = Ports(self._folder, rabbitmq.PORTS + postgres.PORTS + seaweedfs.PORTS)
        ports = self._ports.numbers
        broker = rabbitmq.RabbitMQ(self._folder, ports)
        database = postgres.Postgres(self._folder, ports)
        objects = seaweedfs.SeaweedFS(self._folder, ports)
        for server in (broker, objects, database):  # The slowest first: they boot side by side.
            server.prepare()
            self._servers[server.name] = Running(server)
        self._wait_until_ready(*self._servers.values())
        Addresses(
            amqp_url=broker.amqp_url,
            management_url=broker.management_url,
            prometheus_url=broker.prometheus_url,
            database_url=database.url(),
            s3_endpoint=objects.endpoint,
            access_key=objects.access_key,
            secret_key=objects.secret_key,
            bucket=seaweedfs.BUCKET,
            folder=str(self._folder),
        ).save()

    def _wait_until_ready(self, *servers: Running) -> None:
        waiting = list(servers)
        while waiting := [running for running in waiting if not self._is_ready(running)]:
            self._events.pause(0.1)

    def _is_ready(self, running: Running) -> bool:
        """Whether the server serves now. `StackError` where there is nothing to wait for any more."""
        name = running.server.name
        if running.exit_code is not None:
            raise StackError(f"{name} ended with exit code {running.exit_code}; {tail(running.server.log)}")
        if running.seconds > READY_SECONDS:
            raise StackError(f"{name} is not ready after {READY_SECONDS} s; {tail(running.server.log)}")
        if not running.server.ready():
            return False
        self._say(f"{name} is ready after {running.seconds:.1f} s")
        return True

    def _serve(self) -> None:
        self._listener = control.listen(self._folder)
        self._events.watch(self._listener, self._answer)
        self._tell(ready=True)
        self._report = None
        while not self._asked_to_end:
            self._events.pause()
        self._log("stopping: asked to")

    def _answer(self) -> None:
        self._events.ignore(self._listener)  # One request at a time: those made meanwhile wait in the backlog.
        try:
            connection, request = control.receive(self._listener)
            with connection:
                control.reply(connection, **self._outcome(request))
        except (OSError, ValueError) as error:
            self._log(f"a request came to nothing: {error}")
        self._events.watch(self._listener, self._answer)

    def _outcome(self, request: dict[str, Any]) -> dict[str, Any]:
        operation = self._operations[request.pop("do")]
        try:
            return {"value": operation(**request)}
        except StackError as error:
            return {"error": str(error)}

    def _status(self) -> dict[str, Any]:
        self._reap()
        return {name: running.status() for name, running in self._servers.items()}

    def _down(self) -> None:
        self._asked_to_end = True

    def _kill(self, name: str) -> None:
        self._end(self._named(name), by=signal.SIGKILL)

    def _start(self, name: str) -> None:
        running = self._named(name)
        self._reap()
        if running.exit_code is None:
            raise StackError(f"{name} runs already")
        self._kill_orphans()
        running.server.prepare()
        running.start()
        self._wait_until_ready(running)

    def _restart(self, name: str, kill: bool) -> None:
        running = self._named(name)
        self._end(running, by=signal.SIGKILL if kill else None)
        self._start(name)

    def _named(self, name: str) -> Running:
        if name not in self._servers:
            raise StackError(f"no server is called {name!r}: there are {', '.join(self._servers)}")
        return self._servers[name]

    def _end(self, *servers: Running, by: signal.Signals | None) -> None:
        for running in servers:
            running.ask_to_end(by)
        for running in servers:
            running.wait_for_end()
        self._kill_orphans()

    def _kill_orphans(self) -> None:
        """End what a dead server left, e.g. PostgreSQL's backends, which hold its shared memory."""
        import psutil

        own = {pid for running in self._servers.values() for pid in running.pids()}
        while orphans := [child for child in psutil.Process().children() if child.pid not in own]:
            for orphan in orphans:
                orphan.kill()
            self._reap()
            time.sleep(0.01)

    def _reap(self) -> None:
        """Take the exit codes of children, adopted orphans among them, so that no zombie is left."""
        while (pid := _ended_child()) is not None:
            server = next((running for running in self._servers.values() if pid in running.pids()), None)
            if server is None:
                os.waitpid(pid, 0)
            else:
                server.took_end(pid, self._log)

    def _stop_all(self) -> None:
        in_haste = self._discard or self._gave_up  # Then there is nothing worth an orderly end.
        self._end(*self._servers.values(), by=signal.SIGKILL if in_haste else None)
        (self._folder / control.SOCKET).unlink(missing_ok=True)
        self._log("stopped")

    def _say(self, text: str) -> None:
        self._log(text)
        self._tell(said=text)

    def _tell(self, **message: Any) -> None:
        """Report to the process that waits for the start."""
        if self._report is not None:
            try:
                self._report.write(json.dumps(message) + "\n")
                self._report.flush()
            except BrokenPipeError:
                raise Stopped("the process that waited for the start is gone") from None

    def _log(self, text: str) -> None:
        sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")


def _ended_child() -> int | None:
    """The pid of a child that ended and whose exit code nobody took yet."""
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if ended is None else ended.si_pid
