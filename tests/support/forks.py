"""Python processes that load nothing: each is forked from one that has all the services in memory.

A start of a service takes seconds of a busy machine, nearly all of them for imports. Tests that start hundreds, to kill
them, start them so; that a service starts from nothing as well is for others to see.
"""

import atexit
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "services.embedded.__main__",
        "tests.support.doomed_executor",
        "tests.support.doomed_service",
        "tests.support.job_process",
        "tests.support.service_process",
    ]
)
ROOT = Path(__file__).parents[2]


class Forked:
    """``python -m MODULE ARGUMENTS``, with as much of ``subprocess.Popen`` as tests use."""

    def __init__(
        self, module: str, *arguments: str, output: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """
        Args:
            module: what is run.
            arguments: ``sys.argv`` after its name.
            output: the file that its output and errors are added to.
            environment: all of its environment; ``None``: this process's.
        """
        self._command = [sys.executable, "-m", module, *arguments]
        environment = dict(os.environ if environment is None else environment)
        until, begun = FORKS.Pipe(duplex=False)
        self._process: Any = FORKS.Process(
            target=_run, args=(begun, module, arguments, environment, str(output)), name=module, daemon=True
        )
        self._process.start()
        begun.close()
        until.poll(None)  # it has its output, and leads a session of its own
        until.close()
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """How it ended, as far as ``poll`` or ``wait`` have seen."""
        return self.poll()

    def poll(self) -> int | None:
        """How it ended; ``None``: it runs."""
        code: int | None = self._process.exitcode
        return code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises `subprocess.TimeoutExpired`."""
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self._command, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Nothing happens where it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _run(begun: Connection, module: str, arguments: Sequence[str], environment: Mapping[str, str], output: str) -> None:
    """In the new process."""
    os.setsid()
    _connect(os.devnull, os.O_RDONLY, 0)
    _connect(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 1, 2)
    begun.close()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    sys.argv = [module, *arguments]
    warnings.filterwarnings("ignore", message=".*found in sys.modules after import", category=RuntimeWarning)
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:  # a process that multiprocessing has made leaves these out
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()


def _connect(path: str, flags: int, *descriptors: int) -> None:
    opened = os.open(path, flags, 0o644)
    for descriptor in descriptors:
        os.dup2(opened, descriptor)
    os.close(opened)
