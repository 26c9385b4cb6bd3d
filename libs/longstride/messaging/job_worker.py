"""A Celery worker with our jobs: as a process of its own with killable children, or as threads of this process."""

import ctypes
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, Protocol

from celery import signals
from celery.exceptions import CPendingDeprecationWarning
from celery.worker import WorkController, state

from longstride.messaging.celery_app import JobSettings, job_names, make_celery
from longstride.messaging.wake_pipe import Listening, WakePipe

logger = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1
HAND_BACK = signal.SIGUSR2
"""Tells a child to give its job back."""
CANNOT_START = signal.SIGUSR1
"""Tells the parent that a child could not make what it needs."""


class Runner(Protocol):
    """Carries jobs out in one process; see ``job_runner.JobRunner``."""

    def start(self) -> None:
        """Open what it needs: called in the child, after the fork."""

    def run(self, job: str, wire: str) -> None:
        """Carry one job out."""

    def hand_back(self) -> None:
        """Give the running jobs back, for another worker to take; called on a thread of its own."""

    def stop(self, timeout_s: float) -> None:
        """Close it."""


class JobWorker:
    """Builds and runs Celery's worker."""

    def __init__(
        self,
        settings: JobSettings,
        make_runner: Callable[[], Runner],
        on_lost: Callable[[str], object] = lambda _message_id: None,
    ) -> None:
        """
        Args:
            settings: of the worker.
            make_runner: called once in each process that carries jobs out: in every child after its fork, so that
                connections, threads and exporters are its own.
            on_lost: called with a command's message id in the parent when its child died or was killed at a limit.
        """
        self._settings = settings
        self._make_runner = make_runner
        self._on_lost = on_lost
        self._runner: Runner | None = None
        self._given_up = False
        self._wake_pipe: WakePipe | None = None
        self.app = make_celery(settings)
        for job in job_names(settings):
            self._register(job)

    def _register(self, job: str) -> None:
        def run(wire: str) -> None:
            assert self._runner is not None, "the runner is made when the process starts"
            self._runner.run(job, wire)

        self.app.task(run, name=job, shared=False)

    def start_runner(self) -> None:
        """Make this process able to carry jobs out."""
        self._runner = self._make_runner()
        self._runner.start()

    def stop_runner(self, timeout_s: float = 5.0) -> None:
        """Undo that."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.stop(timeout_s)

    def controller(self, ready: Callable[[], object] = lambda: None) -> WorkController:
        """Celery's worker, to be started; it calls ``ready`` when it takes jobs."""
        self.app.finalize()
        self.app.set_default()  # the pool's threads look it up there
        controller = WorkController(
            app=self.app,
            hostname=f"longstride-{os.getpid()}@localhost",
            loglevel=logging.WARNING,
            without_mingle=True,
            without_gossip=True,
            without_heartbeat=True,
            ready_callback=lambda _consumer: ready(),
        )
        self.app.job_worker = controller
        return controller

    def run(self) -> int:
        """Run in this process until SIGTERM, with children that can be killed; returns the exit code.

        SIGTERM ends it once the running jobs have finished, or have been handed back after ``drain_s``; SIGQUIT kills. A
        child that cannot make its runner ends it at once.
        """
        warnings.filterwarnings("ignore", category=CPendingDeprecationWarning)
        signals.worker_process_init.connect(self._child_started, weak=False)
        signals.worker_process_shutdown.connect(self._child_stops, weak=False)
        signals.task_failure.connect(self._job_failed, weak=False)
        with closing(WakePipe()) as self._wake_pipe:
            self.app.wake_pipe = self._wake_pipe
            self.app.steps["worker"].add(Listening)
            controller = self.controller()
            self._install_signals(controller, self._wake_pipe.wake)
            controller.start()
        return os.EX_UNAVAILABLE if self._given_up else int(controller.exitcode or 0)

    def _install_signals(self, controller: WorkController, wake: Callable[[], object]) -> None:
        def finish(*_: Any) -> None:
            state.should_stop = 0
            signal.setitimer(signal.ITIMER_REAL, self._settings.drain_s)
            wake()

        def hand_back(*_: Any) -> None:
            for pid in controller.pool.info["processes"]:
                with suppress(ProcessLookupError):
                    os.kill(pid, HAND_BACK)

        def abort(*_: Any) -> None:
            state.should_terminate = 0
            wake()

        def give_up(*_: Any) -> None:
            self._given_up = True
            state.should_terminate = os.EX_UNAVAILABLE
            wake()

        signal.signal(CANNOT_START, give_up)
        signal.signal(signal.SIGTERM, finish)
        signal.signal(signal.SIGINT, finish)
        signal.signal(signal.SIGALRM, hand_back)
        signal.signal(signal.SIGQUIT, abort)

    def _child_started(self, **_: Any) -> None:
        # A child whose parent was killed must not go on: its lease would be kept alive for a job nobody supervises.
        die_with_parent(signal.SIGKILL)
        if self._wake_pipe is not None:
            self._wake_pipe.close()
        try:
            self.start_runner()
        except Exception:
            # Celery would log it and let the child fail every job.
            logger.critical("a job process cannot start, so its service ends", exc_info=True)
            os.kill(os.getppid(), CANNOT_START)
            os._exit(os.EX_UNAVAILABLE)
        runner = self._runner
        assert runner is not None
        # On a thread: the main one may be inside the very locks that handing back needs.
        hand_back = lambda *_: threading.Thread(target=runner.hand_back, name="hand back").start()  # noqa: E731
        signal.signal(HAND_BACK, hand_back)

    def _child_stops(self, **_: Any) -> None:
        self.stop_runner()

    def _job_failed(self, task_id: str, exception: BaseException, **_: Any) -> None:
        logger.error("job %s: its process is gone: %s", task_id, exception)
        self._on_lost(task_id)


class EmbeddedJobs:
    """A job worker as threads of this process: a ``Part`` of the embedded stack. Its jobs cannot be killed from outside;
    they must watch their lease."""

    name = "job worker"

    def __init__(self, worker: JobWorker) -> None:
        self.failure: BaseException | None = None
        self._worker = worker
        self._controller: WorkController | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    @property
    def busy(self) -> int:
        """Jobs under way."""
        return len(state.active_requests)

    def start(self) -> None:
        """Start the worker's threads."""
        self._worker.start_runner()
        self._thread.start()

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until it takes jobs."""
        return self._ready.wait(timeout_s)

    def drain(self) -> None:
        """Take no more jobs."""
        controller = self._controller
        if controller is not None and controller.consumer is not None and controller.consumer.task_consumer is not None:
            controller.consumer.task_consumer.cancel()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Let the jobs finish, and end."""
        controller = self._controller
        if controller is not None:
            controller.stop()
        self._thread.join(timeout_s)
        self._worker.stop_runner()

    def _run(self) -> None:
        try:
            self._controller = self._worker.controller(self._ready.set)
            # Two of Celery's threads might find it not started at the same time, and start it twice.
            self._controller.timer.ensure_started()
            self._controller.start()
        except BaseException as error:
            self.failure = error
            logger.critical("the job worker ended by an error that it does not know", exc_info=True)


def die_with_parent(number: signal.Signals) -> None:
    """Have the kernel send this process a signal when its parent's thread that made it ends. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(number))
