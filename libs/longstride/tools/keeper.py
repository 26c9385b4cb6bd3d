"""The process of an executor service that keeps its tasks' processes running: it carries out every call of those tasks.

A service's other processes come and go, and a task's next call may go to any of them. They hand the calls of tasks that may
keep processes on to this one (``keeper_link``).
"""

import errno
import fcntl
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from longstride.tools.household import Households
from longstride.tools.kept_call import HELLO, KeptAnswer, KeptCall

logger = logging.getLogger(__name__)

BACKLOG = 128
TICK_S = 0.5
"""How often it looks whether it is still of use."""
IDLE_S = 120.0
"""Without a call and without a process, for so long, it ends."""
CALLED_OFF_S = 20.0
"""For calls to end when the service does."""

CarryOut = Callable[[KeptCall, threading.Event], KeptAnswer]


class Door:
    """Where a service's keeper is found: a socket, and a lock that is held while one starts or ends."""

    def __init__(self, folder: Path, service: int) -> None:
        """
        Args:
            folder: of this user alone; made when it is first needed.
            service: the process id of the service, whose start tells it from a later one of the same number.
        """
        self.folder = folder
        self.name = f"{service}-{started(service)}"

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Hold the lock; ``False``: somebody else does."""
        with self._held("lock") as held:
            yield held

    @contextmanager
    def owned(self) -> Iterator[bool]:
        """Be the keeper; ``False``: there is one. Whoever starts one may die meanwhile, and the next starts another."""
        with self._held("owner") as held:
            yield held

    @contextmanager
    def address(self) -> Iterator[str]:
        """Of the socket. Through the folder's descriptor: a socket's path has 107 bytes at the most.

        Raises:
            PermissionError: the folder is not this user's alone, and whoever listens there may be anybody.
        """
        directory = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            status = os.fstat(directory)
            if status.st_uid != os.geteuid() or status.st_mode & 0o077:
                raise PermissionError(errno.EPERM, "it is not this user's alone", str(self.folder))
            yield f"/proc/self/fd/{directory}/{self.name}.sock"
        finally:
            os.close(directory)

    def listen(self) -> socket.socket:
        """The keeper's end. Call it while the lock is held; what a dead keeper left is replaced."""
        (self.folder / f"{self.name}.sock").unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with self.address() as address:
            listener.bind(address)
        listener.listen(BACKLOG)
        return listener

    def remove(self) -> None:
        """The socket, and all that services that are gone left here, this one's where it is."""
        (self.folder / f"{self.name}.sock").unlink(missing_ok=True)
        for path in self.folder.iterdir():
            pid, _, start = path.stem.partition("-")
            if pid.isdigit() and start.isdigit() and started(int(pid)) != int(start):
                path.unlink(missing_ok=True)

    @contextmanager
    def _held(self, what: str) -> Iterator[bool]:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.folder / f"{self.name}.{what}").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True


class Keeper:
    """Serves until its service ends, or it is of no use."""

    def __init__(
        self,
        door: Door,
        carry_out: CarryOut,
        households: Households,
        idle_s: float = IDLE_S,
        failed: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Args:
            door: where it is found.
            carry_out: a call; raises nothing.
            households: the processes that it keeps.
            idle_s: seconds of idleness after which it ends.
            failed: whether a part beside it cannot go on; it ends then, and the next call starts another.
        """
        self._failed = failed
        self._door = door
        self._carry_out = carry_out
        self._households = households
        self._idle_s = idle_s
        self._calls: set[threading.Event] = set()
        self._guard = threading.Lock()
        self._busy_until = time.monotonic()
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Be done; from a signal handler, too."""
        self._stopping.set()

    def serve(self, listener: socket.socket, service: int) -> None:
        """Answer calls.

        Trouble with one call ends neither the keeper nor what it keeps.

        Args:
            listener: ``door.listen()``.
            service: a pidfd of the service.
        """
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        poll.register(service, select.POLLIN)
        while not self._stopping.is_set():
            ready = [descriptor for descriptor, _ in poll.poll(1e3 * TICK_S)]
            if service in ready or self._failed():
                break
            if listener.fileno() in ready:
                self._welcome(listener)
            elif self._of_no_use() and self._closed(listener):
                return
        self._door.remove()
        listener.close()
        self._call_off()

    def _welcome(self, listener: socket.socket) -> None:
        """Out of descriptors or threads, it lets the rest wait for a moment."""
        try:
            connection, _ = listener.accept()
            with ExitStack() as undo:
                undo.callback(connection.close)
                self._receive(connection)
                undo.pop_all()
        except (OSError, RuntimeError) as error:
            logger.error("the keeper cannot take a call now, and tries again in %g s: %s", TICK_S, error)
            self._stopping.wait(TICK_S)

    def _receive(self, connection: socket.socket) -> None:
        called_off = threading.Event()
        attending = threading.Thread(target=self._attend, args=(connection, called_off), name="kept call", daemon=True)
        with self._guard:
            self._calls.add(called_off)
        try:
            attending.start()
        except RuntimeError:
            with self._guard:
                self._calls.discard(called_off)
            raise

    def _attend(self, connection: socket.socket, called_off: threading.Event) -> None:
        try:
            with connection, suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(HELLO)
                reader = connection.makefile("rb")
                if line := reader.readline():
                    threading.Thread(target=_listen, args=(reader.read, called_off), daemon=True).start()
                    connection.sendall(self._carry_out(KeptCall.model_validate_json(line), called_off).line())
                    connection.shutdown(socket.SHUT_RDWR)
        finally:
            with self._guard:
                self._calls.discard(called_off)
                self._busy_until = time.monotonic()

    def _of_no_use(self) -> bool:
        with self._guard:
            if self._calls or self._households.running:
                self._busy_until = time.monotonic()
            return time.monotonic() - self._busy_until > self._idle_s

    def _closed(self, listener: socket.socket) -> bool:
        """Unless somebody is coming: whoever starts a keeper holds the lock. Who connected already comes again."""
        with self._door.locked() as alone:
            if alone:
                self._door.remove()
                listener.close()
            return alone

    def _call_off(self) -> None:
        with self._guard:
            calls = list(self._calls)
        for called_off in calls:
            called_off.set()
        deadline = time.monotonic() + CALLED_OFF_S
        while self._calls and time.monotonic() < deadline:
            time.sleep(0.02)


def _listen(read: Callable[[], bytes], called_off: threading.Event) -> None:
    """Until the other side closes its half."""
    with suppress(OSError, ValueError):
        read()
    called_off.set()


def started(pid: int) -> int:
    """When a process started, in ticks since the host's start; 0: there is none that lives. The name may hold anything."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] == "Z" else int(fields[19])
