"""Programs that are talked with while they run, on real backends."""

from collections.abc import Iterator

import pytest

from longstride.sandbox.base import Command, Volume
from longstride.sandbox.errors import ProgramEnded
from tests.support.eventually import eventually
from tests.support.sandboxes import SMALL, Arena, arena, processes_of
from tests.support.talker import Talker

MEBIBYTE = 1 << 20


@pytest.fixture(scope="module", params=["bubblewrap", "runc", "runsc"])
def box(request: pytest.FixtureRequest) -> Iterator[Arena]:
    with arena(name=request.param) as made:
        yield made


@pytest.fixture
def volume(box: Arena) -> Iterator[Volume]:
    with box.volume() as made:
        yield made
        assert processes_of(made) == []
        assert box.left_over() == set()


def test_each_side_answers_the_other(box: Arena, volume: Volume) -> None:
    program = 'n=0; while read -r line; do n=$((n+1)); echo "$n $line"; echo "heard $line" >&2; done; exit 3'
    talker = Talker()
    thread = talker.start(box.backend, Command(("sh", "-c", program), volume, SMALL))
    talker.tell(b"one\n")
    eventually(lambda: talker.out == b"1 one\n" and talker.err == b"heard one\n")
    talker.tell(b"two\nthree\n")
    eventually(lambda: talker.out == b"1 one\n2 two\n3 three\n")
    assert talker.stdin is not None
    talker.stdin.hang_up()
    thread.join()
    assert talker.execution is not None
    assert (talker.execution.exit_code, talker.execution.stdout) == (3, talker.out)


def test_every_byte_arrives_once(box: Arena, volume: Volume) -> None:
    # More than a pipe, a shell's buffer and a socket's buffer hold, right at the start.
    sent = bytes(range(256)) * 4096
    code = "import sys, hashlib; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
    talker = Talker()
    thread = talker.start(box.backend, Command(("python3", "-c", code), volume, SMALL))
    talker.tell(sent)
    assert talker.stdin is not None
    talker.stdin.hang_up()
    thread.join()
    # sha256sum of the same bytes, made with coreutils.
    assert talker.out.strip() == b"fbbab289f7f94b25736c58be46a994c441fd02552cc6022352e3d86d2fab7c83"


def test_a_program_that_ended_is_told_nothing_more(box: Arena, volume: Volume) -> None:
    talker = Talker()
    talker.start(box.backend, Command(("true",), volume, SMALL)).join()
    with pytest.raises(ProgramEnded):
        talker.tell(b"anybody?\n")


def test_a_command_that_is_not_there(box: Arena, volume: Volume) -> None:
    talker = Talker()
    talker.start(box.backend, Command(("no-such-program",), volume, SMALL)).join()
    assert talker.execution is not None
    assert talker.execution.exit_code == 127
    assert b"no-such-program" in talker.err


def test_who_waits_for_a_program_that_does_not_read_is_released_by_its_end(box: Arena, volume: Volume) -> None:
    talker = Talker()
    thread = talker.start(box.backend, Command(("sleep", "60"), volume, SMALL.model_copy(update={"wall_s": 1.0})))
    with pytest.raises(ProgramEnded):
        talker.tell(bytes(4 * MEBIBYTE))
    thread.join()
    assert talker.execution is not None
    assert talker.execution.limit == "wall_s=1"


def test_it_is_killed_when_it_is_cancelled(box: Arena, volume: Volume) -> None:
    talker = Talker()
    thread = talker.start(box.backend, Command(("cat",), volume, SMALL))
    talker.cancelled.set()
    thread.join()
    assert talker.execution is not None
    assert talker.execution.killed


def test_without_a_dialogue_the_input_is_empty(box: Arena, volume: Volume) -> None:
    execution = box.backend.run(Command(("sh", "-c", "cat; echo end"), volume, SMALL))
    assert execution.stdout == b"end\n"
