"""The parent of a job service about its children, which are real processes here; Celery's worker is played."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from services.job_health import JobHealth
from tests.support.eventually import eventually


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    with ExitStack() as running:
        processes = [running.enter_context(subprocess.Popen(["sleep", "60"])) for _ in range(2)]
        for process in processes:
            running.callback(process.kill)
        yield processes


def worker(**controller: Any) -> Any:
    return SimpleNamespace(app=SimpleNamespace(job_worker=SimpleNamespace(**controller)))


def health_of(children: list[subprocess.Popen[bytes]], patience_s: float) -> JobHealth:
    pool = SimpleNamespace(info={"processes": [child.pid for child in children]})
    return JobHealth(worker(pool=pool, consumer=None), 2, patience_s=patience_s)


def test_children_that_live_are_well(children: list[subprocess.Popen[bytes]]) -> None:
    assert health_of(children, 0).children() is None


def test_a_dead_child_is_given_the_time_to_be_replaced(children: list[subprocess.Popen[bytes]]) -> None:
    """Dead, and not yet waited for: its pid is still there."""
    patient, impatient = health_of(children, 60), health_of(children, 0)
    children[0].kill()
    said = eventually(impatient.children)
    assert said == "1 of 2 children are alive, for 0 s"
    assert patient.children() is None


def test_without_any_child_there_is_no_patience(children: list[subprocess.Popen[bytes]]) -> None:
    health = health_of(children, 60)
    for child in children:
        child.kill()
        child.wait()
    assert health.children() == "0 of 2 children are alive, for 0 s"


@pytest.mark.parametrize(
    ("consumer", "said"),
    [
        (None, "not connected to the broker"),
        (SimpleNamespace(connection=None, task_consumer=object()), "not connected to the broker"),
        (SimpleNamespace(connection=SimpleNamespace(connected=False), task_consumer=object()), "not connected"),
        (SimpleNamespace(connection=SimpleNamespace(connected=True), task_consumer=None), "not subscribed"),
    ],
)
def test_a_worker_that_cannot_hear_of_jobs_says_so(consumer: Any, said: str) -> None:
    assert said in (JobHealth(worker(consumer=consumer, pool=None), 1).broker() or "")


def test_before_the_worker_is_made_nothing_is_well() -> None:
    health = JobHealth(SimpleNamespace(app=SimpleNamespace()), 1)  # type: ignore[arg-type]
    assert health.broker()
    assert health.children()
