"""The README's program, run as it stands: nothing of ours is imported by it."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.standin_planner import StandinPlanner

README = Path(__file__).parents[2] / "README.md"
EXAMPLE = re.compile(r"<!-- pika example.*?-->\n```python\n(?P<code>.*?)```\n<!-- end of pika example -->", re.DOTALL)


def example() -> str:
    found = EXAMPLE.search(README.read_text())
    assert found, "README.md has no pika example between its markers"
    return found["code"]


def test_the_example_needs_nothing_but_pika() -> None:
    assert set(re.findall(r"^(?:import|from) (.*)$", example(), re.MULTILINE)) == {"json, os, uuid", "pika"}


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
