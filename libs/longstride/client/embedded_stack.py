"""The embedded stack: one process of its own that outlives the command which started it."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from longstride.client.elsewhere import environment_elsewhere
from longstride.client.errors import ClientError, Unreachable
from longstride.client.room import Room
from longstride.client.working_directory import working_directory

COMMAND = (sys.executable, "-m", "services.embedded")
START_S = 90.0
"""A first start makes a database; slow disks take their time."""
STOP_S = 30.0
POLL_S = 0.05
NEWS_S, MORE_NEWS_S = 3.0, 10.0
"""Seconds of a start after which a person is told what it does, and between two times."""
LOG_LINES = 20
TOLD = "longstride: "
"""How the stack's own sentences begin in its log."""


@dataclass(frozen=True, slots=True)
class RunningStack:
    """What ``stack.json`` says."""

    pid: int
    database_url: str
    artifacts: Path
    """The folder of the artifact store."""
    started_at: str
    """ISO 8601."""
    incarnation: str
    version: str


class StackFileDamaged(ClientError):
    """``stack.json`` does not say where the stack is reached."""


class EmbeddedStack:
    """The stack of one home folder: ``stack.lock`` is held while it lives, ``stack.json`` says where it is reached.

    ``start.lock`` is shared by all that were started here, from before they load their programs until they hold
    ``stack.lock`` or have ended.
    """

    def __init__(self, home: Path, command: Sequence[str] = COMMAND) -> None:
        """``command`` starts the stack; ``--start-lock FD`` and ``--home DIR`` are added."""
        self._command = command
        self.home = home.expanduser().absolute()
        self.log = self.home / "stack.log"
        self._told_before = 0
        """Bytes of the log that are of earlier stacks."""

    def running(self) -> RunningStack | None:
        """The live stack; a ``stack.json`` whose process is gone counts for nothing."""
        try:
            raw = json.loads((self.home / "stack.json").read_text())
            stack = RunningStack(**{**raw, "artifacts": Path(raw["artifacts"])})
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(error) from error
        except (ValueError, TypeError, KeyError) as error:
            raise StackFileDamaged(
                f"{self.home / 'stack.json'} cannot be read ({error}): `longstride down` ends the stack that wrote it, and the"
                " next command starts it again"
            ) from error
        return stack if _alive(stack.pid) and self._locked() else None

    @property
    def stopped(self) -> bool:
        """It ended in an orderly way, or never ran: one that was killed leaves its ``stack.json`` behind."""
        return not (self.home / "stack.json").exists()

    def up(self, say: Callable[[str], None], timeout_s: float = START_S) -> RunningStack:
        """Start the stack unless it runs; callers at the same time end up with the same one.

        Raises:
            ClientError: its folder cannot hold it.
            Unreachable: it did not come up; the text holds the end of its log.
        """
        running = self.running()
        if running is not None:
            return running
        self._require_room()
        say(f"starting the embedded stack in {self.home}")
        child = self._spawn()
        # Reaps the child whenever it ends, so that it does not stay a zombie of this process.
        threading.Thread(target=child.wait, daemon=True).start()
        try:
            return self._wait_ready(child, timeout_s, say)
        except KeyboardInterrupt:
            # Others may wait for this very stack by now.
            say("the stack goes on starting; `longstride down` ends it")
            raise

    def _spawn(self) -> "subprocess.Popen[bytes]":
        environment = environment_elsewhere(os.environ, working_directory())
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            log, start = self.log.open("ab"), self._starts().open("ab")
            self._told_before = log.tell()
            fcntl.flock(start, fcntl.LOCK_SH)
        except OSError as error:
            raise self._unusable(error) from error
        with log, start:
            return subprocess.Popen(
                [*self._command, "--start-lock", str(start.fileno()), "--home", str(self.home)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=environment,
                start_new_session=True,
                pass_fds=(start.fileno(),),
            )

    def _unusable(self, error: OSError) -> ClientError:
        return ClientError(
            f"{self.home} cannot hold an embedded stack: {error.strerror or error}; set LONGSTRIDE_HOME to a folder that can"
        )

    def _require_room(self) -> None:
        try:
            room = Room.of(self.home)
        except OSError as error:
            raise self._unusable(error) from error
        if room.free_mb < room.needed_mb:
            raise ClientError(f"{self.home} cannot hold an embedded stack: {room.told}; {room.remedy}")

    def _wait_ready(
        self, child: "subprocess.Popen[bytes]", timeout_s: float, say: Callable[[str], None]
    ) -> RunningStack:
        began = time.monotonic()
        news = began + NEWS_S
        while (now := time.monotonic()) < began + timeout_s:
            if now >= news:
                say(f"still starting after {now - began:.0f} s: {self._doing()}")
                news += MORE_NEWS_S
            stack = self.running()
            if stack is not None:
                return stack
            # A child that ended has lost the race for the lock to another start, which is then waited for, or has failed.
            if child.poll() is not None and not self._locked():
                raise self._failed(f"it ended with exit code {child.returncode}")
            time.sleep(POLL_S)
        if child.poll() is None:
            child.terminate()
        holder = self._holder()
        told = (
            f": pid {holder} holds the folder, and `longstride down` ends it" if holder not in (None, child.pid) else ""
        )
        raise self._failed(f"it was not ready in time{told}")

    def _failed(self, why: str) -> Unreachable:
        tail = "".join(f"\n  {line}" for line in self.log_tail())
        return Unreachable(f"the embedded stack did not start: {why}. The end of {self.log}:{tail or ' (empty)'}")

    def _doing(self) -> str:
        """What the stack said last."""
        said = [line.removeprefix(TOLD) for line in self.log_tail() if line.startswith(TOLD)]
        return said[-1] if said else "loading its programs"

    def log_tail(self, lines: int = LOG_LINES) -> list[str]:
        """The last lines of the log."""
        if not self.log.exists():
            return []
        with self.log.open("rb") as file:
            file.seek(max(self._told_before, self.log.stat().st_size - 64 * 1024))
            return file.read().decode(errors="replace").splitlines()[-lines:]

    def down(self, timeout_s: float = STOP_S) -> RunningStack | None:
        """Ask the stack to drain and end, and wait for it, though it has only begun to start; returns what ran last.

        Raises:
            ClientError: it has not ended in time.
        """
        ended, deadline = None, time.monotonic() + timeout_s
        while (stack := self._next(deadline)) is not None:
            self._end(stack, deadline, timeout_s)
            ended = stack
        return ended

    def _end(self, stack: RunningStack, deadline: float, timeout_s: float) -> None:
        with suppress(ProcessLookupError):  # it ended by itself
            os.kill(stack.pid, signal.SIGTERM)
        while _alive(stack.pid):
            if time.monotonic() > deadline:
                raise ClientError(f"the stack (pid {stack.pid}) still drains after {timeout_s:g} s; see {self.log}")
            time.sleep(POLL_S)

    def _next(self, deadline: float) -> RunningStack | None:
        """What runs here, waited for when it has been started and still loads its programs."""
        while (stack := self._live()) is None and self._starting():
            if time.monotonic() > deadline:
                raise ClientError(f"a stack is being started in {self.home} and does not come up; see {self.log}")
            time.sleep(POLL_S)
        return stack or self._live()

    def _starting(self) -> bool:
        """Whether a start has not come to hold the folder yet, nor ended."""
        return _held(self._starts(), fcntl.LOCK_EX)

    def _starts(self) -> Path:
        return self.home / "start.lock"

    def _live(self) -> RunningStack | None:
        """What runs, though its ``stack.json`` be gone, or damaged and removed here: then little is known of it."""
        try:
            stack = self.running()
        except StackFileDamaged:
            (self.home / "stack.json").unlink(missing_ok=True)
            stack = None
        if stack is None and (pid := self._holder()) is not None:
            return RunningStack(pid, "", self.home / "artifacts", "", "", "")
        return stack

    def _holder(self) -> int | None:
        """Who holds this home; ``None``: nobody, or one that has just begun to."""
        if not self._locked():
            return None
        told = (self.home / "stack.lock").read_text().strip()
        return int(told) if told.isdecimal() and _alive(int(told)) else None

    def _locked(self) -> bool:
        """Whether a stack holds this home. Only asked when one is thought to live, as asking takes the lock for a moment."""
        return _held(self.home / "stack.lock", fcntl.LOCK_SH)


def _held(path: Path, against: int) -> bool:
    """Whether somebody holds the lock of a file in a way that a lock of the kind ``against`` cannot be had beside it."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, against | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def _alive(pid: int) -> bool:
    """Whether a process still runs; one that has ended and that nobody has waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state == "Z"
