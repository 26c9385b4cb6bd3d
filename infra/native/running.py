"""The processes of one server while they run."""

import signal
import subprocess
from collections.abc import Callable
from typing import Any

from infra.native.server import Server

TAIL_BYTES = 4000


class Running:
    """Starts, stops and kills the processes of `server`; the last of its commands is the server itself."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ending = False

    def start(self) -> None:
        self.server.log.parent.mkdir(mode=0o700, exist_ok=True)
        self._ending = False
        self._processes = [command.start() for command in self.server.commands()]

    @property
    def _main(self) -> "subprocess.Popen[bytes]":
        return self._processes[-1]

    @property
    def exit_code(self) -> int | None:
        """None while the server runs."""
        return self._main.poll()

    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def took_end(self, pid: int, log: Callable[[str], None]) -> None:
        """Take the exit code of the process `pid` of this server; an end that nobody here asked for is logged."""
        process = next(process for process in self._processes if process.pid == pid)
        process.wait()
        if not self._ending:
            log(f"{self.server.name}: process {pid} ended by itself with exit code {process.returncode}")

    def signal_stop(self, number: signal.Signals | None = None) -> None:
        """Ask the server to end, by its own signal unless told another."""
        self._ending = True
        if self._processes and self.exit_code is None:
            self._main.send_signal(number or self.server.stop_signal)

    def finish_stop(self) -> None:
        """Wait for the end that `signal_stop` asked for, and kill what does not come to it."""
        if not self._processes:
            return
        try:
            self._main.wait(self.server.stop_seconds)
        except subprocess.TimeoutExpired:
            self._main.kill()
        for process in reversed(self._processes):
            process.kill()
            process.wait()

    def status(self) -> dict[str, Any]:
        return {"pid": self._main.pid, "exit_code": self.exit_code, "log": str(self.server.log)}

    def log_tail(self) -> str:
        with self.server.log.open("rb") as file:
            file.seek(max(0, self.server.log.stat().st_size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
        return f"the end of {self.server.log}:\n{text}"
