"""The in-memory twin behaves as the port says."""

import threading
from pathlib import Path

import pytest

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import Command
from longstride.sandbox.errors import IsolationUnavailable, ProgramEnded, SandboxFailed
from longstride.sandbox.memory import LimitReached, MemorySandbox, Process
from tests.support.eventually import eventually
from tests.support.talker import Talker

LIMITS = SandboxLimits(wall_s=5, output_bytes=256, output_mb=1, disk_mb=1, files=16)


def hello(process: Process) -> int:
    (process.workspace / "made").write_text(process.argv[1])
    process.print("hello " + process.argv[1])
    process.stderr.write(b"warning")
    return 0


def greedy(process: Process) -> int:
    raise LimitReached("memory_mb")


def slow(process: Process) -> int:
    process.work(60)
    return 0


def chatty(process: Process) -> int:
    process.stdout.write(b"x" * 10_000)
    return 4


def endless(process: Process) -> int:
    while True:
        process.print("y" * 1000)


def parrot(process: Process) -> int:
    while line := process.read_line():
        process.print(line.decode().rstrip("\n"))
    return 0


@pytest.fixture
def backend(tmp_path: Path) -> MemorySandbox:
    programs = {"hello": hello, "greedy": greedy, "slow": slow, "chatty": chatty, "endless": endless, "parrot": parrot}
    return MemorySandbox(tmp_path, programs)


def run(backend: MemorySandbox, *argv: str, limits: SandboxLimits = LIMITS, **options: object):
    return backend.run(Command(argv, backend.volumes.create(limits), limits), **options)


def test_a_program_works_on_the_workspace(backend: MemorySandbox) -> None:
    volume = backend.volumes.create(LIMITS)
    execution = backend.run(Command(("hello", "you"), volume, LIMITS))
    assert (execution.status, execution.exit_code) == ("ok", 0)
    assert (execution.stdout, execution.stderr) == (b"hello you\n", b"warning")
    assert (volume.path / "made").read_text() == "you"


def test_output_is_capped(backend: MemorySandbox) -> None:
    execution = run(backend, "chatty")
    assert execution.status == "failed"
    assert len(execution.stdout) < 256
    assert b"9872 bytes of output were dropped" in execution.stdout


def test_endless_output_ends_the_program(backend: MemorySandbox) -> None:
    execution = run(backend, "endless")
    assert (execution.status, execution.limit, execution.exit_code) == ("limit", "output_mb=1", None)
    assert execution.written == 1 << 20


def test_a_limit_is_named(backend: MemorySandbox) -> None:
    assert run(backend, "greedy").limit == "memory_mb=512"


def test_the_wall_clock_stops_a_program(backend: MemorySandbox) -> None:
    execution = run(backend, "slow", limits=LIMITS.model_copy(update={"wall_s": 0.05}))
    assert (execution.status, execution.limit, execution.killed) == ("timeout", "wall_s=0.05", False)


def test_a_cancellation_stops_a_program(backend: MemorySandbox) -> None:
    cancelled = threading.Event()
    cancelled.set()
    assert run(backend, "slow", cancelled=cancelled).killed


def test_a_stronger_boundary_is_refused_with_a_sentence(backend: MemorySandbox) -> None:
    with pytest.raises(IsolationUnavailable, match="needs microvm isolation, and the memory backend gives process"):
        backend.run(Command(("hello", "x"), backend.volumes.create(LIMITS), LIMITS, isolation="microvm"))


def test_an_unknown_program_is_the_tests_mistake(backend: MemorySandbox) -> None:
    with pytest.raises(SandboxFailed, match="no program 'rm'"):
        run(backend, "rm")


def test_a_program_is_talked_with(backend: MemorySandbox) -> None:
    talker = Talker()
    thread = talker.start(backend, Command(("parrot",), backend.volumes.create(LIMITS), LIMITS))
    talker.tell(b"one\ntw")
    eventually(lambda: talker.out == b"one\n")
    talker.tell(b"o\n")
    eventually(lambda: talker.out == b"one\ntwo\n")
    assert talker.stdin is not None
    talker.stdin.hang_up()
    thread.join()
    assert talker.execution is not None
    assert (talker.execution.status, talker.execution.stdout) == ("ok", b"one\ntwo\n")
    with pytest.raises(ProgramEnded):
        talker.tell(b"three\n")


def test_without_a_dialogue_a_program_reads_nothing(backend: MemorySandbox) -> None:
    assert run(backend, "parrot").stdout == b""
