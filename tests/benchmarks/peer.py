"""A peer as a process of its own: it is told the size of each lap on standard input, and answers on standard output."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from tests.benchmarks.lap import Lap

ROOT = Path(__file__).parents[2]
Laps = Callable[[int, int], tuple[list[list[float]], float]]
"""``laps(steps, tasks)`` → for each task the monotonic seconds at which its model calls started, with the end; and the wall time."""


def serve(laps: Laps) -> None:
    """The peer's side: say that it is ready, then run a lap a line, until the input ends."""
    print("ready", flush=True)
    for line in sys.stdin:
        starts, wall_s = laps(**json.loads(line))
        print(json.dumps({"starts": starts, "wall_s": wall_s}), flush=True)


class Peer:
    """Our side of it."""

    def __init__(self, name: str, process: "subprocess.Popen[str]") -> None:
        self.name = name
        self._process = process
        self._read("ready")

    def run(self, steps: int, tasks: int) -> Lap:
        """One lap."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"steps": steps, "tasks": tasks}) + "\n")
        self._process.stdin.flush()
        told = json.loads(self._read("{"))
        cycles = [after - before for starts in told["starts"] for before, after in pairwise(starts)]
        assert len(cycles) == steps * tasks, f"{self.name} did {len(cycles)} steps, not {steps * tasks}"
        return Lap(cycles, told["wall_s"])

    def _read(self, beginning: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(beginning):
                return line
        raise RuntimeError(f"{self.name} ended with exit code {self._process.wait()}")


@contextmanager
def peer(name: str, module: str, database_url: str) -> Iterator[Peer]:
    """Run ``python -m module DATABASE_URL`` for the time of a ``with`` block."""
    command = [sys.executable, "-m", module, database_url]
    process = subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield Peer(name, process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)
