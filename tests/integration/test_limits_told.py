"""Every limit of a tool call, reached on the real backend: the observation says which one it was and how far the call got.

Needs bubblewrap alone.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from longstride.contracts.v1.action import Observation
from longstride.contracts.v1.limits import Allowance, SandboxLimits, Share
from tests.support.sandboxes import SMALL, Arena, arena

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the whole recipe needs root")

GOT = r"(\d+\.\d) s, (\d+\.\d) s of CPU, (\d+) MB of memory and (\d+\.\d) MiB of output"
"""How far: seconds, CPU, memory, output."""


@dataclass(frozen=True)
class Row:
    """A command that asks for too much of something."""

    name: str
    code: str
    limit: str | None
    """Of the observation; ``None``: it reached it and went on."""
    status: str = "limit"
    told: str = ""
    """What the text must hold besides."""
    limits: dict[str, object] = field(default_factory=dict)
    tool: str = "shell"

    def __str__(self) -> str:
        return self.name


def python(name: str, code: str, limit: str | None, **more: object) -> Row:
    return Row(name, code, limit, tool="python", **more)


FLOOD = "for i in range(1000): open(f'{}/{{i}}', 'w')"
FILL = "import itertools\nfor i in itertools.count(): open(f'{}/{{i}}', 'wb').write(bytes(1 << 20))"
CLEANED = """
import os, tempfile
with tempfile.TemporaryDirectory(dir='{}') as folder:
    for i in range(1000): open(f'{{folder}}/{{i}}', 'wb').write(bytes({}))
"""

ROWS = [
    Row("cpu_s", "while :; do :; done", "cpu_s=1", limits={"cpu_s": 1}),
    Row(
        "cpu_s of all processes",
        "for i in 1 2 3 4; do (while :; do :; done) & done; wait",
        "cpu_s=1",
        limits={"cpu_s": 1, "cpus": 2},
    ),
    Row("cpu_s of a child", "sh -c 'while :; do :; done'; echo went on", "cpu_s=1", limits={"cpu_s": 1}),
    Row("wall_s", "echo begun; sleep 30", "wall_s=1", "timeout", "begun\n", {"wall_s": 1}),
    Row("wall_s of a daemon", "setsid sleep 30 & wait", "wall_s=1", "timeout", limits={"wall_s": 1}),
    python("memory_mb by heap", "x = bytearray(1 << 30)", "memory_mb=96"),
    python("memory_mb by /dev/shm", FILL.format("/dev/shm"), "memory_mb=96"),
    python("memory_mb by /tmp", FILL.format("/tmp"), "memory_mb=96"),
    Row(
        "memory_mb of a child",
        "python3 -c 'x = bytearray(1 << 30)'; echo went on",
        None,
        "ok",
        "[it went on after it had reached memory_mb=96; in all ",
    ),
    python("processes", "import os, time\nfor i in range(40):\n    os.fork() or time.sleep(9)", "processes=24"),
    python(
        "processes by threads",
        "import threading, time\nfor i in range(40): threading.Thread(target=time.sleep, args=(1,)).start()",
        "processes=24",
    ),
    python("disk_mb", FILL.format("."), "disk_mb=8"),
    Row("disk_mb by one file", "head -c 20000000 /dev/zero > big", "disk_mb=8"),
    python("disk_mb by one file, signal ignored", "open('big', 'wb').truncate(1 << 30)", "disk_mb=8"),
    python("disk_mb by one file in /tmp", "open('/tmp/big', 'wb').truncate(1 << 30)", "disk_mb=8"),
    python("disk_mb, cleaned up", CLEANED.format(".", "1 << 20"), "disk_mb=8 or files=500"),
    Row(
        "disk_mb, gone on",
        "for i in $(seq 20); do head -c 1M /dev/zero > f$i; done 2> /tmp/errors; true",
        None,
        "ok",
        "[it went on after it had reached disk_mb=8; in all ",
    ),
    python("files", FLOOD.format("."), "files=500"),
    python("files by /tmp", FLOOD.format("/tmp"), "files=500"),
    python("files by /dev/shm", FLOOD.format("/dev/shm"), "files=500"),
    python("files, cleaned up", CLEANED.format("/tmp", "0"), "disk_mb=8 or files=500"),
    Row("files by folders", "mkdir $(seq 1000)", "files=500"),
    Row("output_mb", "yes", "output_mb=1", limits={"output_mb": 1}),
    Row("output_mb of a child", "yes | tr y z", "output_mb=1", limits={"output_mb": 1}),
    Row(
        "output_bytes",
        "seq 1 9999",
        None,
        "ok",
        "bytes of output were dropped here]",
        {"output_bytes": 1000},
    ),
]


@pytest.fixture(scope="module")
def box() -> Iterator[Arena]:
    with arena(name="bubblewrap") as made:
        yield made


def limits(**changes: object) -> SandboxLimits:
    return SMALL.model_validate({**SMALL.model_dump(), **changes})


def act(box: Arena, row: Row, **more: object) -> Observation:
    argument = {"shell": "command", "python": "code"}[row.tool]
    executed = box.act(row.tool, limits=limits(**row.limits), task="limits", **{argument: row.code}, **more)
    assert executed.observation is not None
    return executed.observation


def test_every_limit_has_a_row() -> None:
    """``cpus`` is a rate: it slows, and stops nothing; the hostile suite measures it."""
    assert {row.name.split()[0].strip(",") for row in ROWS} == set(SandboxLimits.model_fields) - {"cpus"}


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_observation_says_which_limit_and_how_far(box: Arena, row: Row) -> None:
    seen = act(box, row)
    assert (seen.status, seen.limit) == (row.status, row.limit), seen.text[-400:]
    assert row.told in seen.text
    if row.limit:
        assert re.search(f"stopped by {re.escape(row.limit)} after {GOT}$", seen.text), seen.text[-400:]


@pytest.mark.parametrize(
    ("row", "group", "least"),
    [
        (Row("cpu_s", "while :; do :; done", None, limits={"cpu_s": 1}), 2, 1.0),
        (Row("wall_s", "sleep 30", None, limits={"wall_s": 1}), 1, 1.0),
        (python("memory_mb", "x = bytearray(1 << 30)", None), 3, 95),
        (Row("output_mb", "yes", None, limits={"output_mb": 1}), 4, 1.0),
    ],
    ids=str,
)
def test_how_far_it_got_is_measured(box: Arena, row: Row, group: int, least: float) -> None:
    found = re.search(GOT, act(box, row).text)
    assert found
    assert float(found[group]) >= least


@pytest.mark.parametrize(
    ("budget", "code", "told"),
    [
        (
            {"cpu_s": Share(most=120, left=0.75)},
            "while :; do :; done",
            "the task's cpu_s=120 (this call had the 0.75 s",
        ),
        ({"tool_s": Share(most=600, left=0.5)}, "sleep 30", "the task's tool_s=600 (this call had the 0.5 s"),
        ({"output_mb": Share(most=64, left=0.5)}, "yes", "the task's output_mb=64 (this call had the 0.5 MiB"),
    ],
)
def test_a_budget_of_the_task_holds_and_is_told_as_the_tasks(
    box: Arena, budget: dict[str, Share], code: str, told: str
) -> None:
    seen = act(box, Row("budget", code, None), allowance=Allowance(**budget))
    assert re.search(rf"stopped by {re.escape(told)} that were left\) after {GOT}$", seen.text), seen.text[-300:]
    (name,) = budget
    assert seen.limit == f"limits.{name}={budget[name].most:g}"
