"""What a sandbox that waited spares: one Python program, from a plain process to each backend; then churn, and many at once."""

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.backends import BackendName, installed, make
from longstride.sandbox.base import Command, SandboxBackend
from longstride.sandbox.bubblewrap import BubblewrapSandbox
from longstride.sandbox.demand import Bounds
from longstride.sandbox.mounts import mounts_below
from longstride.sandbox.pool import Pool
from longstride.sandbox.scratch import Scratch, _marked
from tests.benchmarks.bench_footprint import timed
from tests.benchmarks.lap import percentile
from tests.benchmarks.table import Table
from tests.support.engine import engine

ROUNDS, CHURN, MANY = 40, 300, 300
PROGRAM = ("/usr/bin/python3", "-c", "pass")
BARE = ("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
LIMITS = SandboxLimits()
PATIENT = SandboxLimits(wall_s=600, memory_mb=64)
Act = Callable[[], object]


def run() -> str:
    """Both tables."""
    return f"{_one()}\n{_many()}"


def _one() -> Table:
    with ExitStack() as stack:
        pool = stack.enter_context(_pool(Bounds(floor=2)))
        acts: dict[str, Act] = {
            "a process": lambda: subprocess.run(PROGRAM, stdin=subprocess.DEVNULL, check=True),
            "bare bwrap, new namespaces, no limits": lambda: subprocess.run((*BARE, *PROGRAM), check=True),
            "bubblewrap from the pool": _running(stack, pool),
        }
        for name in _available(stack):
            backend = make(name)
            stack.callback(backend.close)
            acts[f"{name}, made for the call"] = _running(stack, backend)
        seconds = _measure(acts, pool)
    bare = percentile(seconds["a process"], 0.5)
    rows = [
        (name, *(f"{1e3 * percentile(own, q):.1f}" for q in (0.5, 0.99)), f"{percentile(own, 0.5) / bare:.2f}")
        for name, own in seconds.items()
    ]
    return Table(
        "Sandbox: python3 -c pass, until the sandbox is gone", ("what", "p50 ms", "p99 ms", "times a process"), rows
    )


def _available(stack: ExitStack) -> list[BackendName]:
    """Bubblewrap, and what else is here."""
    found = [name for name in installed() if not name.startswith("docker")]
    if shutil.which("dockerd"):
        os.environ["DOCKER_HOST"] = stack.enter_context(engine())
        found += ["docker"]
    return found


def _running(stack: ExitStack, backend: SandboxBackend) -> Act:
    volume = backend.volumes.create(LIMITS)
    stack.callback(backend.volumes.destroy, volume)
    return lambda: backend.run(Command(PROGRAM, volume, LIMITS))


def _measure(acts: Mapping[str, Act], pool: Pool) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in acts}
    for turn in range(ROUNDS + 2):
        for name, act in acts.items():
            _settled(pool, 2)
            seconds[name] += [timed(act)] * (turn > 1)
    return seconds


def _many() -> Table:
    rows = [(f"{CHURN} sandboxes, {workers} threads", *_churn(workers)) for workers in (2, 16)]
    rows.append((f"{MANY} Python sandboxes alive at once", *_alive()))
    return Table("Sandbox: many", ("what", "took", "rate", "left on the host"), rows)


def _churn(workers: int) -> tuple[str, str, str]:
    with _pool(Bounds(floor=2, ceiling=8)) as pool:
        scratch = _scratch(pool)
        with ThreadPoolExecutor(workers) as threads:
            volumes = list(threads.map(lambda _: pool.volumes.create(LIMITS), range(workers)))
            started = time.perf_counter()
            ends = list(
                threads.map(lambda n: pool.run(Command(("true",), volumes[n % workers], LIMITS)).status, range(CHURN))
            )
            took = time.perf_counter() - started
        assert set(ends) == {"ok"}, ends
        for volume in volumes:
            pool.volumes.destroy(volume)
    return f"{took:.1f} s", f"{CHURN / took:.0f}/s", _left(scratch)


def _alive() -> tuple[str, str, str]:
    backend, over = BubblewrapSandbox(), threading.Event()
    scratch = backend._scratch
    volumes = [backend.volumes.create(PATIENT) for _ in range(MANY)]
    program = ("/usr/bin/python3", "-c", "import time; open('here', 'w'); time.sleep(600)")
    with ThreadPoolExecutor(MANY) as threads:
        started = time.perf_counter()
        guests = [threads.submit(backend.run, Command(program, volume, PATIENT), over) for volume in volumes]
        while not all((volume.path / "here").exists() for volume in volumes) and not any(g.done() for g in guests):
            time.sleep(0.01)
        began = time.perf_counter() - started
        over.set()
        assert all(guest.result().killed for guest in guests)
        ended = time.perf_counter() - started - began
    for volume in volumes:
        backend.volumes.destroy(volume)
    backend.close()
    return f"{began:.1f} s, and {ended:.1f} s to end", f"{MANY / began:.0f}/s", _left(scratch)


def _settled(pool: Pool, ready: int) -> None:
    while pool.level.ready < ready:
        time.sleep(0.002)
    time.sleep(0.01)


def _left(scratch: Scratch) -> str:
    groups = [path for h in scratch.hierarchies for path in h.base.glob(f"{scratch.name}-*")]
    found = (len(_marked(scratch.name)), len(groups), len(mounts_below(scratch.path)), int(scratch.path.exists()))
    return "{} processes, {} control groups, {} mounts, {} folders".format(*found)


def _scratch(pool: Pool) -> Scratch:
    backend = pool._backend
    assert isinstance(backend, BubblewrapSandbox)
    return backend._scratch


@contextmanager
def _pool(bounds: Bounds) -> Iterator[Pool]:
    pool = Pool(BubblewrapSandbox(), bounds)
    try:
        yield pool
    finally:
        pool.close()
