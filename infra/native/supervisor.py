"""The process that owns the servers: starts them, restarts one on request, takes all down when it or its owner ends."""

import json
import os
import selectors
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from infra.native import control, postgres, rabbitmq, seaweedfs
from infra.native.addresses import Addresses
from infra.native.errors import StackError
from infra.native.linux import adopt_orphans
from infra.native.ports import Ports
from infra.native.running import Running

READY_SECONDS = 120
"""A first boot takes 3 to 10 seconds on an idle machine; this is for one that others load heavily."""


class Stopped(Exception):
    """The supervisor was asked to end, or its owner is gone."""


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
        self._report = report
        self._owner = owner
        self._discard = discard
        self._selector = selectors.DefaultSelector()
        self._servers: dict[str, Running] = {}
        self._operations = {
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
            self._watch_signals()
            self._watch_owner()
            self._start_all()
            self._serve()
        except Stopped as reason:
            self._log(f"stopping: {reason}")
        except StackError as error:
            self._log(f"giving up: {error}")
            self._tell(failed=str(error))
        finally:
            self._stop_all()

    def _watch_signals(self) -> None:
        self._wakeups, writer = socket.socketpair()
        self._wakeups.setblocking(False)
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.detach())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)  # The wake-up byte says which came; this keeps the default away.
        self._selector.register(self._wakeups, selectors.EVENT_READ, self._take_signals)

    def _take_signals(self) -> None:
        for number in self._wakeups.recv(4096):
            if number != signal.SIGCHLD:
                raise Stopped(signal.Signals(number).name)
        self._reap()

    def _watch_owner(self) -> None:
        if self._owner is None:
            return
        try:
            descriptor = os.pidfd_open(self._owner)
        except ProcessLookupError:
            raise Stopped("the owner is gone") from None
        self._selector.register(descriptor, selectors.EVENT_READ, self._owner_ended)

    def _owner_ended(self) -> None:
        raise Stopped("the owner ended")

    def _start_all(self) -> None:
        ports = Ports(self._folder, rabbitmq.PORTS + postgres.PORTS + seaweedfs.PORTS)
        broker = rabbitmq.RabbitMQ(self._folder, ports)
        database = postgres.Postgres(self._folder, ports)
        objects = seaweedfs.SeaweedFS(self._folder, ports)
        began = time.monotonic()
        for server in (broker, objects, database):
            self._servers[server.name] = Running(server)
            server.prepare()
            self._servers[server.name].start()
        for running in self._servers.values():
            self._wait_until_ready(running)
            running.server.ready_once()
            self._say(f"{running.server.name} is ready after {time.monotonic() - began:.1f} s")
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

    def _wait_until_ready(self, running: Running) -> None:
        deadline = time.monotonic() + READY_SECONDS
        name = running.server.name
        while not running.server.ready():
            self._pause(0.1)
            if running.exit_code is not None:
                raise StackError(f"{name} ended with exit code {running.exit_code}; {running.log_tail()}")
            if time.monotonic() > deadline:
                raise StackError(f"{name} is not ready after {READY_SECONDS} s; {running.log_tail()}")

    def _serve(self) -> None:
        self._listener = control.listen(self._folder)
        self._listen()
        self._tell(ready=True)
        while True:
            self._pause(None)

    def _listen(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ, self._answer)

    def _answer(self) -> None:
        self._selector.unregister(self._listener)  # One request at a time: those made meanwhile wait in the backlog.
        try:
            connection, request = control.receive(self._listener)
            with connection:
                control.reply(connection, **self._outcome(request))
        except (OSError, ValueError) as error:
            self._log(f"a request came to nothing: {error}")
        finally:
            self._listen()

    def _outcome(self, request: dict[str, Any]) -> dict[str, Any]:
        operation = self._operations[request.pop("do")]
        try:
            return {"value": operation(**request)}
        except StackError as error:
            return {"error": str(error)}

    def _status(self) -> dict[str, Any]:
        return {name: running.status() for name, running in self._servers.items()}

    def _named(self, name: str) -> Running:
        if name not in self._servers:
            raise StackError(f"no server is called {name!r}: there are {', '.join(self._servers)}")
        return self._servers[name]

    def _kill(self, name: str) -> None:
        running = self._named(name)
        running.signal_stop(signal.SIGKILL)
        running.finish_stop()
        self._kill_orphans()
        self._log(f"{name} killed on request")

    def _start(self, name: str) -> None:
        running = self._named(name)
        if running.exit_code is None:
            raise StackError(f"{name} runs already")
        self._kill_orphans()
        running.start()
        self._wait_until_ready(running)
        self._log(f"{name} is ready again")

    def _restart(self, name: str, kill: bool) -> None:
        running = self._named(name)
        running.signal_stop(signal.SIGKILL if kill else None)
        running.finish_stop()
        self._start(name)

    def _down(self) -> None:
        raise Stopped("asked to")

    def _pause(self, seconds: float | None) -> None:
        """Wait for `seconds` or the next event, and handle what came. Raises `Stopped` when it is time to end."""
        for key, _ in self._selector.select(seconds):
            key.data()

    def _reap(self) -> None:
        """Take the exit codes of children, adopted orphans among them, so that no zombie is left."""
        while (pid := _ended_child()) is not None:
            for running in self._servers.values():
                if pid in running.pids():
                    running.took_end(pid, self._log)
                    break
            else:
                os.waitpid(pid, 0)

    def _kill_orphans(self) -> None:
        """End what a dead server left, e.g. PostgreSQL's backends, which hold its shared memory."""
        import psutil

        own = {pid for running in self._servers.values() for pid in running.pids()}
        while orphans := [child for child in psutil.Process().children() if child.pid not in own]:
            for orphan in orphans:
                orphan.kill()
            self._reap()
            time.sleep(0.01)

    def _stop_all(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # Already on the way out, and each wait below has its limit.
        for running in self._servers.values():
            running.signal_stop(signal.SIGKILL if self._discard else None)
        for running in self._servers.values():
            running.finish_stop()
        self._kill_orphans()
        (self._folder / control.SOCKET).unlink(missing_ok=True)
        if self._discard:
            shutil.rmtree(self._folder)
        self._log("stopped")

    def _say(self, text: str) -> None:
        self._log(text)
        self._tell(said=text)

    def _tell(self, **message: Any) -> None:
        try:
            print(json.dumps(message), file=self._report, flush=True)
        except BrokenPipeError:
            raise Stopped("nobody waits for the start any more") from None

    def _log(self, text: str) -> None:
        print(time.strftime("%Y-%m-%d %H:%M:%S"), text, file=sys.stderr, flush=True)


def _ended_child() -> int | None:
    """The pid of a child that ended and whose exit code nobody took yet."""
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if ended is None else ended.si_pid
