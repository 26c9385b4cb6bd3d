"""The processes of one server while they run."""

import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

from infra.native.server import Server


class Running:
    """The started processes of `server`; the last of its commands is the server itself."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.start()

    def start(self) -> None:
        """Start the processes anew."""
        self._ending = False
        self._started = time.monotonic()
        self._processes: list[subprocess.Popen[bytes]] = [command.start() for command in self.server.commands()]

    @property
    def _main(self) -> "subprocess.Popen[bytes]":
        return self._processes[-1]

    @property
    def exit_code(self) -> int | None:
        """None while the server runs."""
        return self._main.poll()

    @property
    def seconds(self) -> float:
        """Since its start."""
        return time.monotonic() - self._started

    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def took_end(self, pid: int, log: Callable[[str], None]) -> None:
        """Take the exit code of the process `pid` of this server; an end that nobody here asked for is logged."""
        process = next(process for process in self._processes if process.pid == pid)
        process.wait()
        if not self._ending:
            log(f"{self.server.name}: process {pid} ended by itself with exit code {process.returncode}")

    def ask_to_end(self, by: signal.Signals | None) -> None:
        """Send the server its own stop signal, or `by`."""
        self._ending = True
        self._deadline = time.monotonic() + self.server.stop_seconds
        if self.exit_code is None:
            self._main.send_signal(by or self.server.stop_signal)

    def wait_for_end(self) -> None:
        """Wait for the end that `ask_to_end` asked for, and kill what does not come to it in time."""
        try:
            self._main.wait(max(0.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._main.kill()
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        for file in self.server.litter:
            file.unlink(missing_ok=True)

    def status(self) -> dict[str, Any]:
        return {"pid": self._main.pid, "exit_code": self.exit_code, "log": str(self.server.log)}
