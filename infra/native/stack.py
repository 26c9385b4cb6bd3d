"""A handle on the stack of one folder, from any process."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infra.native import control, lock
from infra.native.addresses import Addresses
from infra.native.errors import StackError

STOP_SECONDS = 60
ROOT = Path(__file__).parents[2]


class Stack:
    """RabbitMQ, PostgreSQL and an S3 server in `folder`, on ports that nobody else uses."""

    def __init__(self, folder: Path | str, say: Callable[[str], None] = lambda text: None) -> None:
        """`say` takes sentences about progress."""
        self.folder = Path(folder).absolute()
        self._say = say
        self._supervisor: subprocess.Popen[str] | None = None

    def start(self, *, detach: bool = False, discard: bool = False) -> Addresses:
        """Start the stack and return when every server answers; data and ports are those of the last time.

        Args:
            detach: leave the stack running when this process ends. Otherwise it ends too, however this one dies.
            discard: at the end kill rather than stop, and remove the folder: for tests.

        Raises:
            StackError: a server did not start (the text holds the end of its log), or one runs here already.
        """
        if self.running():
            raise StackError(f"a stack runs in {self.folder} already: stop it, or choose another --folder")
        if self._supervisor is not None:
            self._supervisor.wait(STOP_SECONDS)  # An earlier one, which somebody killed.
        (self.folder / "log").mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        arguments = ["--discard"] if discard else []
        arguments += [] if detach else ["--owner", str(os.getpid())]
        with (self.folder / "log" / "supervisor.log").open("a") as log:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-m", "infra.native", "supervise", "--folder", str(self.folder), *arguments],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._follow_start()
        return self.addresses()

    def _follow_start(self) -> None:
        assert self._supervisor is not None
        assert self._supervisor.stdout is not None
        with self._supervisor.stdout as report:
            for line in report:
                message = json.loads(line)
                if "said" in message:
                    self._say(message["said"])
                elif "failed" in message:
                    self._supervisor.wait(STOP_SECONDS)
                    raise StackError(message["failed"])
                else:
                    return
        code = self._supervisor.wait(STOP_SECONDS)
        log = self.folder / "log" / "supervisor.log"
        raise StackError(f"the supervisor ended with exit code {code}; {log} says:\n{log.read_text()[-4000:]}")

    def addresses(self) -> Addresses:
        """Where the running stack is reached. `StackError` where none runs."""
        if not self.running():
            raise StackError(f"no stack runs in {self.folder}: start one with `python -m infra.native up`")
        return Addresses.load(self.folder)

    def running(self) -> bool:
        """Whether a supervisor holds this folder."""
        return lock.held(self.folder)

    def stop(self) -> None:
        """Stop every server and return when nothing is left. Does nothing where no stack runs."""
        if self.running():
            control.ask(self.folder, "down")
        if self._supervisor is not None:
            self._supervisor.wait(STOP_SECONDS)
        deadline = time.monotonic() + STOP_SECONDS
        while self.running():
            if time.monotonic() > deadline:
                raise StackError(f"the stack in {self.folder} did not end within {STOP_SECONDS} s")
            time.sleep(0.05)

    def wait(self) -> None:
        """Return when the stack that this object started has ended, whoever ended it."""
        assert self._supervisor is not None
        self._supervisor.wait()

    def kill(self, name: str) -> None:
        """SIGKILL one of ``rabbitmq``, ``postgres``, ``s3`` and leave it dead."""
        control.ask(self.folder, "kill", name=name)

    def revive(self, name: str) -> None:
        """Start a server that is dead, with its data and on its port, and return when it answers."""
        control.ask(self.folder, "start", name=name)

    def restart(self, name: str, kill: bool = True) -> None:
        """End a server, by SIGKILL or in good order, and start it again with its data and on its port."""
        control.ask(self.folder, "restart", name=name, kill=kill)

    def status(self) -> dict[str, Any]:
        """For each server: ``pid``, ``exit_code`` (None while it runs) and ``log``."""
        status: dict[str, Any] = control.ask(self.folder, "status")
        return status
