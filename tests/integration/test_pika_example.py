"""The README's program, run as it stands: nothing of ours is imported by it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.pika_example import example
from tests.support.standin_planner import StandinPlanner


def test_the_example_is_twelve_lines_that_need_nothing_but_pika() -> None:
    lines = [line for line in example().splitlines() if line.strip()]
    assert len(lines) == 12
    assert [line for line in lines if "import" in line] == ["import json, os, uuid, pika"]


def test_the_example_publishes_a_task_and_reads_its_outcome(amqp_url: str, tmp_path: Path) -> None:
    with StandinPlanner(amqp_url) as planner:
        told = subprocess.run(
            [sys.executable, "-c", example()],
            cwd=tmp_path,
            env={**os.environ, "LONGSTRIDE_AMQP_URL": amqp_url},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert told.returncode == 0, told.stderr
    assert [line.split()[0] for line in told.stdout.splitlines()] == ["task_accepted", "task_ended"]
    assert planner.seen[0].message().inputs[0].text == "17\n42\n"
