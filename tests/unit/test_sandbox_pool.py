"""A pool above the in-memory backend: what waits, for whom, and for how long."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import Capabilities, Command, Spec
from longstride.sandbox.demand import Bounds, Demand
from longstride.sandbox.errors import IsolationUnavailable, SandboxFailed
from longstride.sandbox.memory import MemoryCell, MemorySandbox, Process
from longstride.sandbox.pool import Level, Pool, Source
from tests.support.eventually import eventually
from tests.support.talker import Talker

LIMITS = SandboxLimits(wall_s=5, disk_mb=1, files=16)


def hello(process: Process) -> int:
    process.print("hello")
    return 0


def parrot(process: Process) -> int:
    while line := process.read_line():
        process.print(line.decode().rstrip())
    return 0


class Recorded(MemorySandbox):
    """Remembers what it made, and can be told to fail."""

    def __init__(self, root: Path, *, prewarm: bool = True, fixed_limits: bool = False) -> None:
        super().__init__(root, {"hello": hello, "parrot": parrot}, prewarm=prewarm)
        self.fixed_limits = fixed_limits
        self.made: list[tuple[MemoryCell, Spec, str]] = []
        self.broken = threading.Event()
        self.closed = False

    def capabilities(self) -> Capabilities:
        plain = super().capabilities()
        return replace(plain, fixed_limits=self.fixed_limits)

    def create(self, spec: Spec) -> MemoryCell:
        if self.broken.is_set():
            raise SandboxFailed("out of everything")
        cell = super().create(spec)
        self.made.append((cell, spec, threading.current_thread().name))
        return cell

    def close(self) -> None:
        self.closed = True

    @property
    def living(self) -> int:
        return sum(not cell.destroyed for cell, _, _ in self.made)


class Notes:
    def __init__(self) -> None:
        self.sources: list[Source] = []
        self.levels: list[Level] = []

    def acquired(self, source: Source, seconds: float) -> None:
        assert seconds >= 0
        self.sources.append(source)

    def level(self, level: Level) -> None:
        self.levels.append(level)


@contextmanager
def pool_above(backend: Recorded, bounds: Bounds, notes: Notes | None = None) -> Iterator[Pool]:
    pool = Pool(backend, bounds, notes)
    try:
        yield pool
    finally:
        pool.close()
        assert backend.closed
        assert backend.living == 0, "nothing outlives the pool"


@pytest.fixture
def backend(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path)


def say_hello(pool: Pool) -> None:
    volume = pool.volumes.create(LIMITS)
    assert pool.run(Command(("hello",), volume, LIMITS)).stdout == b"hello\n"
    pool.volumes.destroy(volume)


def test_the_floor_waits_before_anybody_asks(backend: Recorded) -> None:
    with pool_above(backend, Bounds(floor=3)) as pool:
        eventually(lambda: pool.level == Level(ready=3, used=0, target=3))
        assert {thread for _, _, thread in backend.made} == {"sandbox-pool"}


def test_a_sandbox_is_used_once_and_replaced(backend: Recorded) -> None:
    notes = Notes()
    with pool_above(backend, Bounds(floor=1), notes) as pool:
        for turn in range(1, 6):
            eventually(lambda: pool.level.ready == 1)
            say_hello(pool)
            assert sum(cell.destroyed for cell, _, _ in backend.made) == turn
    assert notes.sources == ["warm"] * 5
    assert len({id(cell) for cell, _, _ in backend.made}) == len(backend.made)


def test_a_burst_is_served_cold_and_remembered_up_to_the_ceiling(backend: Recorded) -> None:
    notes = Notes()
    with pool_above(backend, Bounds(floor=1, ceiling=4), notes) as pool:
        eventually(lambda: pool.level.ready == 1)
        burst = [pool.create(Spec(LIMITS)) for _ in range(6)]
        assert notes.sources[0] == "warm"
        assert pool.level.used == 6
        for sandbox in burst:
            sandbox.destroy()
        eventually(lambda: pool.level == Level(ready=4, used=0, target=4))
        notes.sources.clear()
        again = [pool.create(Spec(LIMITS)) for _ in range(4)]
        assert notes.sources == ["warm"] * 4
        for sandbox in again:
            sandbox.destroy()


def test_what_is_idle_is_taken_away(backend: Recorded) -> None:
    with pool_above(backend, Bounds(floor=1, ceiling=4, idle_s=0.3)) as pool:
        burst = [pool.create(Spec(LIMITS)) for _ in range(4)]
        for sandbox in burst:
            sandbox.destroy()
        eventually(lambda: pool.level.ready == 4)
        eventually(lambda: pool.level == Level(ready=1, used=0, target=1))
        assert backend.living == 1


def test_a_program_in_a_pooled_sandbox_is_talked_with(backend: Recorded) -> None:
    talker = Talker()
    with pool_above(backend, Bounds(1, 1)) as pool:
        thread = talker.start(pool, Command(("parrot",), backend.volumes.create(LIMITS), LIMITS))
        talker.tell(b"hello\n")
        eventually(lambda: talker.out == b"hello\n")
        assert talker.stdin is not None
        talker.stdin.hang_up()
        thread.join()


def test_one_that_died_waiting_is_passed_over(backend: Recorded) -> None:
    with pool_above(backend, Bounds(floor=2)) as pool:
        eventually(lambda: pool.level.ready == 2)
        backend.made[0][0].destroy()
        say_hello(pool)


def test_a_backend_that_fails_is_asked_again_and_callers_hear_of_it(backend: Recorded) -> None:
    backend.broken.set()
    with pool_above(backend, Bounds(floor=1)) as pool:
        with pytest.raises(SandboxFailed, match="out of everything"):
            pool.create(Spec(LIMITS))
        assert pool.level.used == 0
        backend.broken.clear()
        eventually(lambda: pool.level.ready == 1)


def test_without_prewarming_every_sandbox_is_made_for_its_workspace(tmp_path: Path) -> None:
    backend, notes = Recorded(tmp_path, prewarm=False), Notes()
    with pool_above(backend, Bounds(floor=2), notes) as pool:
        say_hello(pool)
        assert [spec.workspace is not None for _, spec, _ in backend.made] == [True]
    assert notes.sources == ["cold"]


def test_fixed_limits_have_shelves_of_their_own(tmp_path: Path) -> None:
    backend, notes = Recorded(tmp_path, fixed_limits=True), Notes()
    with pool_above(backend, Bounds(floor=1, idle_s=0.3), notes) as pool:
        eventually(lambda: pool.level.ready == 1)
        say_hello(pool)
        assert notes.sources == ["cold"], "what waited had other limits"
        eventually(lambda: pool.level.ready == 2)
        say_hello(pool)
        assert notes.sources == ["cold", "warm"]
        assert {spec.limits for _, spec, _ in backend.made} == {LIMITS, SandboxLimits()}
        eventually(lambda: pool.level == Level(ready=1, used=0, target=1))


def test_what_shows_links_is_made_for_its_call(backend: Recorded) -> None:
    notes = Notes()
    with pool_above(backend, Bounds(floor=1), notes) as pool:
        eventually(lambda: pool.level.ready == 1)
        pool.create(Spec(LIMITS, links={"/app": "/workspace"})).destroy()
        assert notes.sources == ["cold"], "what waits was made without them"
        assert backend.made[-1][1].links == {"/app": "/workspace"}
        eventually(lambda: pool.level.ready >= 1)
        assert {tuple(spec.links) for _, spec, name in backend.made if name == "sandbox-pool"} == {()}


def test_what_shows_a_folder_is_made_for_its_call(backend: Recorded, tmp_path: Path) -> None:
    notes = Notes()
    with pool_above(backend, Bounds(floor=1), notes) as pool:
        eventually(lambda: pool.level.ready == 1)
        pool.create(Spec(LIMITS, folders={"mcp/x": tmp_path})).destroy()
        assert notes.sources == ["cold"], "what waits was made without it"
        assert backend.made[-1][1].folders == {"mcp/x": tmp_path}


def test_links_that_a_backend_cannot_show_are_refused(tmp_path: Path) -> None:
    plain = MemorySandbox(tmp_path, {"hello": hello, "parrot": parrot}).capabilities()
    with pytest.raises(IsolationUnavailable, match="/app shown in its sandboxes, and the memory backend shows the"):
        replace(plain, links=False).admit(Spec(LIMITS, links={"/app": "/workspace"}))


def test_a_stronger_boundary_is_refused_before_anything_is_taken(backend: Recorded) -> None:
    with pool_above(backend, Bounds(floor=1)) as pool:
        with pytest.raises(IsolationUnavailable, match="microvm"):
            pool.create(Spec(LIMITS, "microvm"))
        assert pool.level.used == 0


def test_many_threads_take_and_give_back(backend: Recorded) -> None:
    notes = Notes()
    with pool_above(backend, Bounds(floor=2, ceiling=8), notes) as pool:
        threads = [threading.Thread(target=lambda: [say_hello(pool) for _ in range(20)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert pool.level.used == 0
    assert len(notes.sources) == 160
    assert max(level.ready for level in notes.levels) <= 8


def test_demand_is_the_peak_of_the_window() -> None:
    now = [0.0]
    demand = Demand(10, lambda: now[0])
    for _ in range(5):
        demand.took()
    now[0] = 1
    for _ in range(4):
        demand.gave_back()
    now[0] = 5
    demand.took()
    demand.gave_back()
    assert demand.peak() == 5
    assert demand.changes_in() == 6, "five were in use until second 1"
    now[0] = 12
    assert demand.peak() == 2, "two were, until second 5"
    now[0] = 16
    assert (demand.peak(), demand.changes_in()) == (1, None)


@pytest.mark.parametrize("bounds", [(-1, 3), (4, 3)])
def test_bounds_that_make_no_sense_are_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="floor lies between 0 and its ceiling"):
        Bounds(*bounds)
