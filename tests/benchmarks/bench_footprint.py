"""What the embedded stack costs while it has nothing to do, how soon it is there, and how soon the command line answers."""

import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from longstride.client.embedded_stack import EmbeddedStack
from tests.benchmarks.table import Row, Table

MIB = 1 << 20
IDLE_S = 10.0
HELPS = 10
AIM_MIB, AIM_HELP_S = 600, 0.3


def run() -> Table:
    """Measure, and say so in a table."""
    home = Path(tempfile.mkdtemp(prefix="longstride-bench-"))
    try:
        rows = [*_help(), *_embedded(EmbeddedStack(home))]
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return Table("Footprint", ("what", "measured", "aim"), rows)


def _embedded(stack: EmbeddedStack) -> list[Row]:
    first = timed(lambda: stack.up(_quiet))
    stack.down()
    second = timed(lambda: stack.up(_quiet))
    try:
        return [
            ("embedded stack: first start, with a new database", f"{first:.1f} s", ""),
            ("embedded stack: start", f"{second:.1f} s", ""),
            *_idle(stack),
        ]
    finally:
        stack.down()


def _idle(stack: EmbeddedStack) -> list[Row]:
    """Memory and CPU after ``IDLE_S`` seconds. PSS counts a page that processes share once; RSS in each of them."""
    running = stack.running()
    assert running is not None, "it was started"
    root = psutil.Process(running.pid)
    time.sleep(IDLE_S)
    before = _cpu_s(processes(root))
    time.sleep(IDLE_S)
    here = processes(root)
    memory = [process.memory_full_info() for process in here]
    return [
        (f"idle: PSS of {len(here)} processes", f"{sum(m.pss for m in memory) / MIB:.0f} MiB", f"< {AIM_MIB} MiB"),
        ("idle: RSS of the same, shared pages counted again", f"{sum(m.rss for m in memory) / MIB:.0f} MiB", ""),
        ("idle: CPU", f"{100 * (_cpu_s(here) - before) / IDLE_S:.1f} % of a core", ""),
    ]


def processes(root: psutil.Process) -> list[psutil.Process]:
    """The stack's process, and PostgreSQL's."""
    return [root, *root.children(recursive=True)]


def _cpu_s(running: list[psutil.Process]) -> float:
    return sum(times.user + times.system for times in (process.cpu_times() for process in running))


def _help() -> list[Row]:
    """``longstride --help``, as a process of its own. Its CPU time says what a busy machine hides."""
    command = [sys.executable, "-m", "longstride.client.main", "--help"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    times = [timed(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(HELPS)]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / HELPS
    return [
        (f"longstride --help, median of {HELPS}", f"{statistics.median(times):.2f} s", f"< {AIM_HELP_S:g} s"),
        ("longstride --help, CPU time", f"{cpu_s:.2f} s", ""),
    ]


def timed(act: Callable[[], object]) -> float:
    """Seconds that it takes."""
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def _quiet(_text: str) -> None:
    pass
