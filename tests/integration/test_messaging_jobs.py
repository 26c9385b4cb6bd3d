"""Celery carries tool calls: children that can be killed on RabbitMQ, threads in the embedded stack."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import psutil
import pytest

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.envelope import Envelope, decode, seal
from longstride.contracts.topology import DEAD_LETTER_QUEUE
from longstride.contracts.v1.action import Action
from longstride.contracts.v1.commands import ExecuteAction, UpdatePolicy
from longstride.contracts.v1.limits import SandboxLimits
from longstride.messaging.backbone import Backbone
from longstride.messaging.celery_app import JobSettings
from longstride.messaging.dead_letters import DeadLetterDrain, replay
from longstride.messaging.job_worker import EmbeddedJobs, JobWorker
from longstride.messaging.outgoing import Outgoing, to_job_queue
from longstride.messaging.reaper import Reaper
from longstride.messaging.timers import Timers
from longstride.storage.dead_letters import DeadLetter
from tests.support import job_process, leaks
from tests.support.broker_semantics import depth
from tests.support.eventually import eventually
from tests.support.forks import Forked
from tests.support.inbox_of import InboxOf
from tests.support.messaging_fixtures import *  # noqa: F403
from tests.support.messaging_fixtures import prepare, start_backbone, start_consumer, start_part
from tests.support.pocket_planner import new_task

JOBS = "longstride.execute"
ANSWERS = "longstride.planner"
SHELL = ("sh", "-c", '"$@" > /dev/null 2>&1 & echo $!; read _', "sh")
"""Starts a program in the background, and ends when its input does."""


@contextmanager
def job_process_of(
    database_url: str,
    amqp_url: str,
    slots: int = 1,
    time_limit_s: float = 600,
    drain_s: float = 10,
    **variables: str,
) -> Iterator[Forked]:
    """A job worker as a process, ready to take jobs."""
    numbers = [str(slots), str(time_limit_s), str(drain_s)]
    with TemporaryDirectory() as folder:
        output = Path(folder, "output")
        environment = {**os.environ, **variables}
        process = Forked(
            "tests.support.job_process", database_url, amqp_url, *numbers, output=output, environment=environment
        )
        try:
            eventually(lambda: "starting\n" in output.read_text())
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30)


@pytest.fixture
def jobs(backbone: Backbone, database_url: str, broker_url: str, running: ExitStack) -> Callable[..., Any]:
    """Start a job worker: a process on RabbitMQ, threads in memory."""

    def start(slots: int = 1, **options: Any) -> Any:
        if broker_url.startswith("amqp"):
            worker = running.enter_context(job_process_of(database_url, broker_url, slots, **options))
        else:
            settings = JobSettings(broker_url, slots=slots, pool="threads")
            worker = EmbeddedJobs(JobWorker(settings, lambda: job_process.runner(database_url, broker_url, backbone)))
            start_part(running, worker)
            assert worker.wait_ready(60)
        return worker

    return start


def command(**arguments: Any) -> Envelope:
    action = Action(tool="shell", arguments=arguments)
    message = ExecuteAction(step=1, action=action, tools=(), limits=SandboxLimits(), isolation="process")
    return seal(message, task_id=f"task-{uuid4().hex}", session_id="s")


def dispatch(backbone: Backbone, **arguments: Any) -> Envelope:
    envelope = command(**arguments)
    assert envelope.task_id is not None
    with backbone.database.begin() as uow:
        uow.tasks.insert(new_task(envelope.task_id))
        uow.attempts.dispatch(envelope.task_id, 1, "execute", 1, envelope.message_id, envelope.encode().decode())
        backbone.outbox.post(uow, envelope)
    return envelope


def answered(inbox: InboxOf) -> dict[str, int]:
    """Task → attempt, of the answers that came."""
    answers = [decode(body.encode()) for body in inbox.bodies]
    return {str(envelope.task_id): envelope.attempt for envelope in answers}


def letters(backbone: Backbone) -> list[DeadLetter]:
    with backbone.database.begin() as uow:
        return uow.dead_letters.list()


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def watch_over(backbone: Backbone, running: ExitStack) -> None:
    """Reaper, timers and dead-letter drain."""
    unsafe = lambda _message: False  # noqa: E731
    start_part(
        running,
        Reaper(
            backbone.database, backbone.outbox, backbone.bus, backbone.leases, unsafe=unsafe, every_s=0.1, silence_s=1
        ),
    )
    start_part(running, Timers(backbone.database, backbone.outbox, every_s=0.1))
    start_consumer(running, backbone, DEAD_LETTER_QUEUE, DeadLetterDrain(backbone.database))


def test_jobs_are_carried_out_and_answered(backbone: Backbone, jobs: Any, running: ExitStack) -> None:
    answers = InboxOf()
    start_consumer(running, backbone, ANSWERS, answers)
    jobs(slots=2)
    commands = [dispatch(backbone) for _ in range(20)]
    eventually(lambda: answered(answers) == {str(c.task_id): 1 for c in commands})


def test_a_duplicate_job_is_not_carried_out_again(
    backbone: Backbone, jobs: Any, running: ExitStack, tmp_path: Path
) -> None:
    answers, note = InboxOf(), tmp_path / "note"
    start_consumer(running, backbone, ANSWERS, answers)
    jobs()
    envelope = dispatch(backbone, note=str(note))
    eventually(lambda: answers.bodies)
    again = to_job_queue(envelope.encode(), JOBS, envelope.message_id, "execute_action")
    assert backbone.bus.publish_all([again]) == [None]
    eventually(lambda: len(answers.bodies) == 2)
    assert len(lines(note)) == 1


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Outgoing(b"[[]]", JOBS, "m", exchange="", headers={"task": "fly", "id": "m"}), "rejected"),
        (Outgoing(b"{}", JOBS, "m", exchange="", content_type="application/x-python-serialize"), "rejected"),
        (Outgoing(b"not celery", JOBS, "m", exchange=""), "rejected"),
        (to_job_queue(b"not JSON", JOBS, "m", "execute_action"), "not JSON"),
        (to_job_queue(command().encode().replace(b'"step":1', b'"step":0'), JOBS, "m", "execute_action"), "step"),
        (to_job_queue(command().encode(), JOBS, "m", "update_policy"), "cannot be the argument"),
    ],
    ids=["an unknown job", "a pickle", "no job at all", "not JSON", "a bad command", "a command of another job"],
)
def test_a_job_that_cannot_be_understood_is_a_dead_letter(
    backbone: Backbone, jobs: Any, running: ExitStack, message: Outgoing, reason: str
) -> None:
    start_consumer(running, backbone, DEAD_LETTER_QUEUE, DeadLetterDrain(backbone.database))
    answers = InboxOf()
    start_consumer(running, backbone, ANSWERS, answers)
    jobs()
    assert backbone.bus.publish_all([message]) == [None]
    (letter,) = eventually(lambda: letters(backbone))
    assert reason in letter.reason
    dispatch(backbone)
    eventually(lambda: answers.bodies)


def test_a_worker_takes_no_more_than_it_can_run(
    backbone: Backbone, jobs: Any, running: ExitStack, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    jobs(slots=1)
    long = dispatch(backbone, note=str(note), sleep=8)
    eventually(lambda: lines(note))
    dispatch(backbone, note=str(note))
    eventually(lambda: depth(backbone.bus, JOBS) == 1)
    beyond = time.monotonic() + 6  # by now the long job's delivery has been acknowledged, 5 s after its start
    eventually(lambda: time.monotonic() > beyond)
    assert depth(backbone.bus, JOBS) == 1, "the other job is free for any other worker to take"
    eventually(lambda: len(lines(note)) == 2)
    assert long.message_id


def test_a_cancelled_job_stops(backbone: Backbone, jobs: Any, running: ExitStack, tmp_path: Path) -> None:
    note, answers = tmp_path / "note", InboxOf()
    start_consumer(running, backbone, ANSWERS, answers)
    jobs(slots=1)
    envelope = dispatch(backbone, note=str(note), sleep=60)
    eventually(lambda: lines(note))
    with backbone.database.begin() as uow:
        uow.attempts.abandon(str(envelope.task_id))
    other = dispatch(backbone)
    eventually(lambda: answered(answers) == {str(other.task_id): 1})


def update(tmp_path: Path, policy: str) -> Envelope:
    ref = ArtifactRef(key="s/batch/x", sha256="0" * 64, size=1)
    return seal(UpdatePolicy(batch_id=str(tmp_path / "batch"), batch=ref, policy=policy, base_version=0))


def test_a_plain_job_that_fails_is_tried_again_and_then_kept(
    database_url: str, running: ExitStack, tmp_path: Path
) -> None:
    url = f"memory://{uuid4().hex}"
    prepare(url)
    backbone = start_backbone(running, database_url, url)
    watch_over(backbone, running)
    make_runner = lambda: job_process.runner(database_url, url, backbone, come_back_s=0.5)  # noqa: E731
    start_part(running, EmbeddedJobs(JobWorker(JobSettings(url, slots=1, pool="threads"), make_runner)))
    with backbone.database.begin() as uow:
        backbone.outbox.post(uow, envelope := update(tmp_path, "fail"))
    (letter,) = eventually(lambda: letters(backbone))
    assert "FAILED_POISON" in letter.reason
    assert letter.message_id == envelope.message_id
    assert len(lines(tmp_path / "batch")) == 4
    with backbone.database.begin() as uow:
        replay(uow, backbone.outbox, letter.id)
    eventually(lambda: len(lines(tmp_path / "batch")) == 5)


# --- children that can be killed: RabbitMQ only -----------------------------------------------------------------------


def test_a_service_whose_children_cannot_start_ends_and_says_why(database_url: str, amqp_url: str) -> None:
    prepare(amqp_url)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.job_process", database_url, amqp_url, "2", "600", "10"],
        env={**os.environ, "BROKEN_RUNNER": "yes"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == os.EX_UNAVAILABLE, done.stderr
    assert "no sandbox can be made here" in done.stderr


def test_a_service_outlives_the_shell_that_started_it(
    prefork: Backbone, database_url: str, amqp_url: str, running: ExitStack
) -> None:
    answers = InboxOf()
    start_consumer(running, prefork, ANSWERS, answers)
    program = [sys.executable, "-m", "tests.support.job_process", database_url, amqp_url, "1", "600", "10"]
    with subprocess.Popen([*SHELL, *program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        service = psutil.Process(int(shell.stdout.readline()))
        try:
            before = dispatch(prefork)
            eventually(lambda: before.task_id in answered(answers))
            shell.communicate("\n", timeout=30)
            after = dispatch(prefork)
            eventually(lambda: after.task_id in answered(answers))
        finally:
            service.terminate()
            eventually(lambda: not service.is_running() or service.status() == psutil.STATUS_ZOMBIE)


@pytest.fixture
def prefork(database_url: str, amqp_url: str, running: ExitStack) -> Backbone:
    prepare(amqp_url)
    backbone = start_backbone(running, database_url, amqp_url)
    watch_over(backbone, running)
    return backbone


def test_a_child_killed_in_a_job_is_replaced_and_the_job_done_by_the_next_attempt(
    prefork: Backbone, database_url: str, amqp_url: str, running: ExitStack
) -> None:
    answers = InboxOf()
    start_consumer(running, prefork, ANSWERS, answers)
    running.enter_context(job_process_of(database_url, amqp_url))
    envelope = dispatch(prefork, signal=signal.SIGKILL)
    begun = time.monotonic()
    eventually(lambda: answered(answers) == {str(envelope.task_id): 2})
    assert time.monotonic() - begun < 15, "the lease did not have to run out"


def test_a_child_beyond_its_time_limit_is_killed(
    prefork: Backbone, database_url: str, amqp_url: str, running: ExitStack, tmp_path: Path
) -> None:
    answers, note = InboxOf(), tmp_path / "note"
    start_consumer(running, prefork, ANSWERS, answers)
    running.enter_context(job_process_of(database_url, amqp_url, time_limit_s=2))
    envelope = dispatch(prefork, signal=signal.SIGSTOP, note=str(note))  # hangs, so that only a kill helps
    eventually(lambda: answered(answers) == {str(envelope.task_id): 2})
    first, second = (line.split()[0] for line in lines(note))
    assert first != second


def test_sigterm_lets_the_job_finish(
    prefork: Backbone, database_url: str, amqp_url: str, running: ExitStack, tmp_path: Path
) -> None:
    answers, note = InboxOf(), tmp_path / "note"
    start_consumer(running, prefork, ANSWERS, answers)
    process = running.enter_context(job_process_of(database_url, amqp_url))
    envelope = dispatch(prefork, sleep=2, note=str(note))
    eventually(lambda: lines(note))
    process.terminate()
    assert process.wait(60) == 0
    eventually(lambda: answered(answers) == {str(envelope.task_id): 1})


def whole_pipes(pid: int) -> set[str]:
    """Pipes of which a process has both ends."""
    ends = [str(end.readlink()) for end in Path(f"/proc/{pid}/fd").iterdir()]
    return {end for end in ends if end.startswith("pipe:") and ends.count(end) == 2}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_alone_has_the_pipe_that_wakes_it(
    prefork: Backbone, database_url: str, amqp_url: str, running: ExitStack, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    worker = running.enter_context(job_process_of(database_url, amqp_url))
    dispatch(prefork, sleep=600, note=str(note))
    child = int(eventually(lambda: lines(note))[0].split()[0])
    assert whole_pipes(worker.pid)
    assert not whole_pipes(worker.pid) & whole_pipes(child)


def test_sigterm_hands_a_long_job_to_another_worker(
    prefork: Backbone, database_url: str, amqp_url: str, running: ExitStack, tmp_path: Path
) -> None:
    answers, note = InboxOf(), tmp_path / "note"
    start_consumer(running, prefork, ANSWERS, answers)
    leaving = running.enter_context(job_process_of(database_url, amqp_url, drain_s=1))
    dispatch(prefork, sleep=600, note=str(note))
    eventually(lambda: lines(note))
    leaving.terminate()
    assert leaving.wait(60) == 0
    running.enter_context(job_process_of(database_url, amqp_url, drain_s=1))
    eventually(lambda: len(lines(note)) == 2)
    assert [line.split()[1] for line in lines(note)] == ["1", "1"], "the same attempt, released and claimed again"


def test_nothing_outlives_a_killed_worker(
    prefork: Backbone, database_url: str, amqp_url: str, running: ExitStack, tmp_path: Path
) -> None:
    answers, note = InboxOf(), tmp_path / "note"
    start_consumer(running, prefork, ANSWERS, answers)
    first = running.enter_context(job_process_of(database_url, amqp_url))
    envelope = dispatch(prefork, sleep_first=600, note=str(note))
    child = int(eventually(lambda: lines(note))[0].split()[0])
    first.kill()
    first.wait(30)
    eventually(lambda: not leaks.command(child))
    running.enter_context(job_process_of(database_url, amqp_url))
    eventually(lambda: answered(answers) == {str(envelope.task_id): 2})


def test_a_plain_job_whose_process_died_is_sent_again(
    prefork: Backbone, database_url: str, amqp_url: str, running: ExitStack, tmp_path: Path
) -> None:
    running.enter_context(job_process_of(database_url, amqp_url, COME_BACK_S="3"))
    with prefork.database.begin() as uow:
        prefork.outbox.post(uow, update(tmp_path, "die"))
    eventually(lambda: len(lines(tmp_path / "batch")) == 2)

    def timers() -> int:
        with prefork.database.engine.connect() as connection:
            return int(connection.exec_driver_sql("SELECT count(*) FROM timers").scalar_one())

    eventually(lambda: timers() == 0)


def test_a_restarted_broker_does_not_lose_jobs(
    prefork: Backbone, database_url: str, amqp_url: str, running: ExitStack, stack: Any
) -> None:
    answers = InboxOf()
    start_consumer(running, prefork, ANSWERS, answers)
    running.enter_context(job_process_of(database_url, amqp_url, slots=2))
    commands = [dispatch(prefork, sleep=0.2) for _ in range(10)]
    eventually(lambda: len(answers.bodies) >= 2)
    restart = threading.Thread(target=stack.restart, args=("rabbitmq",), kwargs={"kill": True})
    restart.start()
    commands += [dispatch(prefork, sleep=0.2) for _ in range(10)]
    restart.join()
    eventually(lambda: answered(answers).keys() == {str(c.task_id) for c in commands})


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="no job queues: \\['nowhere'\\]"):
        JobSettings("memory://x", queues=["nowhere"])
    with pytest.raises(ValueError, match="at least 1"):
        JobSettings("memory://x", slots=0)


def test_the_message_of_a_job_is_what_celery_sends_itself() -> None:
    """Compared with Celery's own message of the same job (protocol 2)."""
    app = JobWorker(JobSettings("memory://x", pool="threads"), lambda: job_process.runner("", "")).app
    theirs = app.amqp.as_task_v2("msg-1", "execute_action", args=("wire",), kwargs={})
    ours = to_job_queue(b"wire", JOBS, "msg-1", "execute_action")
    assert json.loads(ours.body) == json.loads(json.dumps(theirs.body))
    assert ours.headers.keys() <= theirs.headers.keys()
    for name in ("lang", "task", "id", "root_id", "parent_id", "group", "retries", "eta", "expires", "timelimit"):
        assert ours.headers[name] == theirs.headers[name]
