"""One pod for one command: upload, run, look, download, remove."""

import contextlib
import json
import os
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from longstride.contracts.v1.environment import WORKSPACE
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import (
    NEVER,
    SUPPORT,
    Cancellation,
    Command,
    Dialogue,
    Execution,
    Stats,
    Volume,
)
from longstride.sandbox.clock import RunningClock
from longstride.sandbox.errors import IsolationUnavailable, SandboxFailed, WorkspaceUnusable
from longstride.sandbox.kubernetes import parcel, program
from longstride.sandbox.kubernetes.channel import Channel, limited
from longstride.sandbox.kubernetes.cluster import Cluster
from longstride.sandbox.kubernetes.parcel import Bounds, Malformed, pack, pack_files, unpack
from longstride.sandbox.kubernetes.pods import CODE, PORTER, PodModel
from longstride.sandbox.launcher import OPEN_FILES
from longstride.sandbox.rootfs import ENVIRONMENT, searched
from longstride.sandbox.scratch import Scratch, remove_tree
from longstride.sandbox.supervisor import Outcome, Supervisor
from longstride.sandbox.verdict import Evidence, judge

MEBIBYTE = 1 << 20
READABLE = 0o555
TRANSFER_S, LOOK_S = 300.0, 30.0
"""For a workspace to go up or down; for what takes no time."""
MARGIN_S = 600
"""A claim outlives its command by so much: for what comes after it."""
ANSWER = 4096
"""Bytes of what a request answers, and of what it complains about."""
KILLED = 137
"""The exit code of a command that SIGKILL ended."""
NO_DIALOGUE = (
    "this tool talks with its program while it runs, and the kubernetes backend cannot: "
    "submit the task without it, or to an executor whose backend is bubblewrap"
)
LOADER = """\
import json,sys,types
i=sys.stdin.buffer
q=json.loads(i.read(int(i.readline())))
for n,s in q["modules"]:
 m=types.ModuleType(n);sys.modules[n]=m;exec(compile(s,n,"exec"),m.__dict__)
sys.exit(m.main(q["request"],i,sys.stdout.buffer))
"""
"""Short, because it stands in a URL; the rest comes on standard input."""
ARGV = ("python3", "-I", "-S", "-c", LOADER)


@cache
def modules() -> tuple[tuple[str, str], ...]:
    """What is sent along: name, source."""
    return tuple((each.__name__, Path(str(each.__file__)).read_text()) for each in (parcel, program))


def asked(request: Mapping[str, Any]) -> bytes:
    """The start of a command's standard input."""
    text = json.dumps({"modules": modules(), "request": request}).encode()
    return b"%d\n%s" % (len(text), text)


@dataclass
class Unmetered:
    """Nothing is read while a command runs: each look is a request to the API server."""

    cpu_s: float = 0.0
    memory_bytes: int = 0
    peak_memory_bytes: int = 0

    def look(self, first: int | None) -> None:
        """Nothing."""


Count = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Counters(BaseModel):
    """What ``program.look`` counted."""

    model_config = ConfigDict(strict=True, extra="forbid")

    cpu_s: Count = 0
    memory_bytes: Count = 0
    peak_memory_bytes: Count = 0
    out_of_memory: Count = 0
    processes: Annotated[int, Field(ge=0)] = 0
    full: bool = False
    no_inodes: bool = False
    entries: Annotated[int, Field(ge=0)] = 0
    bytes: Annotated[int, Field(ge=0)] = 0

    def exhausted(self, limits: SandboxLimits) -> str | None:
        """The limit that the workspace has reached."""
        if self.full or self.bytes > limits.disk_mb * MEBIBYTE:
            return f"disk_mb={limits.disk_mb}"
        return f"files={limits.files}" if self.no_inodes or self.entries > limits.files else None


class _NoRoom(SandboxFailed):
    """A file system of the pod is full."""


class PodCell:
    """A claimed pod. Its workspace is a copy: ``put`` sends it up, ``collect`` brings it down."""

    def __init__(
        self, cluster: Cluster, claim: str, pod: str, model: PodModel, expires: datetime, scratch: Scratch
    ) -> None:
        """
        Args:
            cluster: where it runs.
            claim: whose pod it is; removed by ``destroy``.
            pod: its name.
            model: what it is made of.
            expires: when the cluster removes it.
            scratch: for what comes down.
        """
        self._cluster, self._claim, self._pod, self._model = cluster, claim, pod, model
        self._expires, self._scratch = expires, scratch
        self._limits = SandboxLimits()
        self._bound: Volume | None = None
        self._clock = RunningClock()
        self._guard = threading.Lock()
        self._gone = False

    @property
    def alive(self) -> bool:
        """Whether the pod runs, as far as the API tells."""
        if self._gone or self._expires < datetime.now(UTC):
            return False
        try:
            found = self._cluster.pod(self._pod)
        except SandboxFailed:
            return False
        return found.status.phase == "Running" and found.metadata.deletion_timestamp is None

    def put(self, workspace: Volume) -> None:
        """Send it up."""
        root = os.open(workspace.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._lay(WORKSPACE, pack(root))
        except Malformed as error:
            raise SandboxFailed(f"the workspace cannot be sent: {error}") from error
        except _NoRoom as error:
            raise WorkspaceUnusable(
                f"the workspace does not fit into the pods of pool {self._model.pool}, which hold {self._model.disk_mb} MiB and a page "
                "for each file: raise the sizeLimit of their template"
            ) from error
        finally:
            os.close(root)
        self._bound = workspace

    def exec(self, command: Command, cancelled: Cancellation = NEVER, dialogue: Dialogue | None = None) -> Execution:
        """Send its files, run it, and see what it left.

        Raises:
            IsolationUnavailable: there is a ``dialogue``: a channel first sends all, and then listens.
        """
        if dialogue is not None:
            raise IsolationUnavailable(NO_DIALOGUE)
        assert self._bound == command.workspace, "put comes before exec"
        limits = self._limits = command.limits
        self._model.require(limits)
        self._outlive(limits.wall_s)
        if command.files:
            self._lay(SUPPORT, pack_files(command.files, READABLE))
        with self._opened(CODE) as channel:
            channel.send([asked(self._run(command))])
            outcome = self._watch(channel, limits, cancelled)
            complaint = channel.complaint
        return judge(self._evidence(outcome, limits, complaint))

    def collect(self, workspace: Volume) -> None:
        """Bring it down beside the volume, and put it in its place once all of it is there."""
        arrived = self._scratch.fresh("arrival")
        try:
            self._fetch(arrived)
            _replace(workspace.path, arrived)
        finally:
            remove_tree(arrived)

    def terminate(self) -> None:
        """SIGTERM to all."""
        self._signal("SIGTERM")

    def pause(self) -> None:
        """SIGSTOP to all: a stopped process cannot continue itself."""
        self._signal("SIGSTOP")
        self._clock.pause()

    def resume(self) -> None:
        """Also those that the command itself had stopped."""
        self._signal("SIGCONT")
        self._clock.resume()

    def stats(self) -> Stats:
        """As the pod's own control group tells."""
        seen = self._look(sweep=False)
        return Stats(seen.cpu_s, int(seen.memory_bytes), seen.processes)

    def destroy(self) -> None:
        """Remove the claim; its pod is killed."""
        with self._guard:
            if not self._gone:
                self._cluster.release(self._claim)
                self._gone = True

    def _outlive(self, seconds: float) -> None:
        needed = datetime.now(UTC) + timedelta(seconds=seconds + MARGIN_S)
        if needed > self._expires:
            self._cluster.prolong(self._claim, needed)
            self._expires = needed

    def _lay(self, root: str, pieces: Iterable[bytes]) -> None:
        # What is sent comes from this host, where it was bounded.
        request = {"do": "lay", "root": root, "entries": 1 << 40, "bytes": 1 << 60}
        self._told(PORTER, request, TRANSFER_S, pieces)

    def _run(self, command: Command) -> dict[str, Any]:
        limits = command.limits
        bounds = {
            "RLIMIT_CORE": 0,
            "RLIMIT_NOFILE": OPEN_FILES,
            "RLIMIT_FSIZE": limits.disk_mb * MEBIBYTE,
            "RLIMIT_CPU": max(1, int(limits.cpu_s) + 1),
            "RLIMIT_DATA": limits.memory_mb * MEBIBYTE,
            **({"RLIMIT_NPROC": limits.processes} if self._model.own_users else {}),
        }
        path = searched(command.env.get("PATH", ""))
        environment = {**ENVIRONMENT, **command.env, "PATH": path}
        named = {"argv": command.argv, "env": environment, "cwd": command.cwd, "rlimits": bounds, "cpu_s": limits.cpu_s}
        return {"do": "run", **named}

    def _watch(self, channel: Channel, limits: SandboxLimits, cancelled: Cancellation) -> Outcome:
        status, write_end = os.pipe2(os.O_CLOEXEC)
        os.close(write_end)
        try:
            return Supervisor(
                channel, status, b"", limits, cancelled, Unmetered(), self._kill, self._clock, passes_code_on=True
            ).watch()
        finally:
            os.close(status)

    def _kill(self) -> None:
        """Where the API does not answer now, the look that follows says so."""
        with contextlib.suppress(SandboxFailed):
            self._signal("SIGKILL")

    def _evidence(self, outcome: Outcome, limits: SandboxLimits, complaint: str) -> Evidence:
        """
        Raises:
            SandboxFailed: processes may be left, or nobody knows how the command ended.
        """
        suspected = outcome.stopped_by is None and outcome.exit_code in (None, KILLED)
        try:
            seen = self._look(sweep=True)
        except SandboxFailed:
            # With its group's memory, the container's first process is killed, and then nobody answers in it.
            if not (suspected and self._ended_for_memory()):
                raise
            seen = Counters(out_of_memory=1)
        if suspected and not seen.out_of_memory and self._ended_for_memory():
            seen = seen.model_copy(update={"out_of_memory": 1})
        if outcome.exit_code is None and outcome.stopped_by is None and not seen.out_of_memory:
            raise SandboxFailed(f"the command's end in pod {self._pod} is not known: {complaint}")
        return Evidence(
            outcome=outcome,
            limits=limits,
            out_of_memory=int(seen.out_of_memory),
            refused_processes=0,
            exhausted=seen.exhausted(limits),
            cpu_s=seen.cpu_s,
            peak_memory_bytes=int(seen.peak_memory_bytes),
        )

    def _ended_for_memory(self) -> bool:
        for status in self._cluster.pod(self._pod).status.container_statuses or ():
            states = (status.state, status.last_state)
            ends = [state.terminated for state in states if state and state.terminated]
            if status.name == CODE and any(end.reason == "OOMKilled" for end in ends):
                return True
        return False

    def _look(self, *, sweep: bool) -> Counters:
        request = {
            "do": "look",
            "sweep": sweep,
            "workspace": WORKSPACE,
            "entries": self._limits.files,
            "bytes": self._limits.disk_mb * MEBIBYTE,
        }
        answer = self._told(CODE, request, LOOK_S)
        try:
            return Counters.model_validate_json(answer)
        except ValidationError as error:
            raise SandboxFailed(f"pod {self._pod} told no counters: {answer[:200]!r}") from error

    def _signal(self, name: str) -> None:
        self._told(CODE, {"do": "signal", "signal": name}, LOOK_S)

    def _fetch(self, target: Path) -> None:
        bounds = Bounds(self._limits.files, self._limits.disk_mb * MEBIBYTE)
        root = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with self._asked(PORTER, {"do": "fetch", "root": WORKSPACE}, TRANSFER_S) as channel:
                if unpack(cast(Any, channel.stdout), root, bounds).over is None:
                    self._require_done(channel)
        except Malformed as error:
            raise SandboxFailed(f"what pod {self._pod} sent is no workspace: {error}") from error
        finally:
            os.close(root)

    def _told(self, container: str, request: Mapping[str, Any], seconds: float, pieces: Iterable[bytes] = ()) -> bytes:
        """What a request answers in a few bytes."""
        with self._asked(container, request, seconds, pieces) as channel:
            assert channel.stdout is not None
            answer = channel.stdout.read(ANSWER)
            self._require_done(channel)
        return answer

    def _require_done(self, channel: Channel) -> None:
        assert channel.stderr is not None
        said = channel.stderr.read(ANSWER).decode(errors="replace").strip()
        channel.wait()
        if channel.exit_code != 0:
            why = said.rpartition("\n")[2] or channel.complaint
            failure = _NoRoom if channel.exit_code == program.FULL else SandboxFailed
            raise failure(f"pod {self._pod} did not do what it was asked (exit code {channel.exit_code}): {why}")

    @contextmanager
    def _asked(
        self, container: str, request: Mapping[str, Any], seconds: float, pieces: Iterable[bytes] = ()
    ) -> Iterator[Channel]:
        """A request that is under way, and not for longer than so many seconds."""
        with self._opened(container) as channel, limited(channel, seconds, f"{request['do']} in pod {self._pod}"):
            channel.send(chain([asked(request)], pieces))
            yield channel

    @contextmanager
    def _opened(self, container: str) -> Iterator[Channel]:
        channel = self._cluster.execute(self._pod, ARGV, container)
        try:
            yield channel
        finally:
            channel.close()


def _replace(volume: Path, arrived: Path) -> None:
    """The directory stays, and what it holds is another's."""
    for entry in list(volume.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            remove_tree(entry)
        else:
            entry.unlink()
    for entry in list(arrived.iterdir()):
        _move(entry, volume / entry.name)


def _move(entry: Path, target: Path) -> None:
    """A directory that may not be written cannot be given another parent."""
    mode = entry.lstat().st_mode
    closed = stat.S_ISDIR(mode) and not mode & stat.S_IWUSR
    if closed:
        entry.chmod(mode | stat.S_IWUSR)
    entry.rename(target)
    if closed:
        target.chmod(stat.S_IMODE(mode))
