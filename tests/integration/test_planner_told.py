"""What would leave a task waiting for nothing is told to it, whoever its tenant is: a part that is refused, a command that is lost."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from longstride.contracts.envelope import Envelope, decode, seal
from longstride.contracts.ids import derived_id
from longstride.contracts.v1.action import Action, Observation
from longstride.contracts.v1.commands import SubmitTask
from longstride.messaging.backbone import Backbone
from longstride.messaging.commands import QueuedCommands
from longstride.messaging.dispatch import Dispatcher
from longstride.messaging.reaper import Reaper
from longstride.messaging.timers import Timers
from longstride.storage.memory import MemoryArtifacts
from services.planner.handlers import Planner, foresee, handlers
from tests.support.eventually import eventually
from tests.support.messaging_fixtures import *  # noqa: F403
from tests.support.messaging_fixtures import in_memory_broker, start_consumer, start_part
from tests.support.played_stack import turns
from tests.support.tasks import a_head

QUEUE = "longstride.planner"
DELEGATE = Action(tool="delegate", arguments={"tasks": [{"name": "a", "instruction": "A"}]})
LOOK = Action(tool="shell", arguments={"command": "ls"})


@pytest.fixture
def broker_url() -> Iterator[str]:
    with in_memory_broker() as url:
        yield url


class Forgetful(Planner):
    """One in whose hands every part fails, as with a fault of its own."""

    def submit_task(self, envelope: Envelope, message: SubmitTask, *more: Any) -> None:
        if message.parent_task_id:
            raise RuntimeError("a fault")
        super().submit_task(envelope, message, *more)


def serve(backbone: Backbone, running: ExitStack, kind: type[Planner], policy: bool = True) -> None:
    """A planner, and a policy that delegates first of all."""
    planner = kind(
        MemoryArtifacts(),
        backbone.outbox,
        QueuedCommands(backbone.outbox),
        tools=("delegate", "shell", "submit"),
        capacity=8,
    )
    dispatcher = Dispatcher(
        "planner",
        handlers(planner),
        backbone.database,
        backbone.outbox,
        first_retry_s=0.01,
        foresee=foresee,
        given_up=planner.part_given_up,
    )
    script = turns((DELEGATE, None), (LOOK, Observation(status="ok", text="-")))

    def answer(delivery: Any) -> None:
        command = decode(delivery.body)
        if said := script(command, command.message()):
            post(backbone, command.follow(said))

    start_consumer(running, backbone, QUEUE, dispatcher)
    if policy:
        start_consumer(running, backbone, "longstride.generate.fast", answer)
    start_part(running, Timers(backbone.database, backbone.outbox, every_s=0.02))


def post(backbone: Backbone, envelope: Envelope) -> None:
    with backbone.database.begin() as uow:
        backbone.outbox.post(uow, envelope)


def observations(backbone: Backbone) -> list[str]:
    with backbone.database.begin() as uow:
        stored = uow.events.read("task_parent")
    return [row.payload["observation"]["text"] for row in stored if row.type == "action_observed"]


def status(backbone: Backbone) -> tuple[str, str | None] | None:
    with backbone.database.begin() as uow:
        head = uow.tasks.head("task_parent", lock=False)
    return head and (head.status, head.reason)


def test_a_command_that_nobody_can_read_any_more_ends_its_task(backbone: Backbone, running: ExitStack) -> None:
    serve(backbone, running, Planner, policy=False)
    post(backbone, seal(SubmitTask(instruction="x"), task_id="task_parent", session_id="session_1", tenant="acme"))
    eventually(lambda: status(backbone) == ("running", None))
    with backbone.database.engine.begin() as connection:
        message_id = connection.exec_driver_sql("SELECT message_id FROM attempts").scalar_one()
        connection.exec_driver_sql("UPDATE attempts SET command = jsonb_set(command, '{version}', '9')")
    with backbone.database.begin() as uow:
        uow.attempts.claim(message_id, "dead-worker", ttl_s=0.1)
    reaper = Reaper(
        backbone.database,
        backbone.outbox,
        backbone.bus,
        backbone.leases,
        unsafe=lambda _: False,
        every_s=0.05,
        silence_s=0.1,
    )
    start_part(running, reaper)
    eventually(lambda: status(backbone) == ("failed", "policy_unavailable"))
    with backbone.database.begin() as uow:
        assert uow.dead_letters.list() == []


@pytest.mark.parametrize("why", ["the id is another's", "the handler fails"])
def test_a_parent_goes_on_without_a_part_that_was_refused(backbone: Backbone, running: ExitStack, why: str) -> None:
    part = derived_id("task", "task_parent", 1, 0)
    if why == "the id is another's":
        with backbone.database.begin() as uow:
            uow.tasks.insert(a_head(id=part, tenant="stranger", status="running"))
    serve(backbone, running, Planner if why == "the id is another's" else Forgetful)
    submission = seal(SubmitTask(instruction="x"), task_id="task_parent", session_id="session_1", tenant="acme")
    post(backbone, submission)
    assert eventually(lambda: observations(backbone)) == ["a: failed (input_unusable)"]
    with backbone.database.begin() as uow:
        (letter,) = uow.dead_letters.list()
        head = uow.tasks.head("task_parent")
    assert letter.reason
    assert head is not None
    assert head.status == "running"


def test_a_stranger_ends_no_part_of_anothers(backbone: Backbone, running: ExitStack) -> None:
    serve(backbone, running, Planner)
    post(backbone, seal(SubmitTask(instruction="x"), task_id="task_parent", session_id="session_1", tenant="acme"))
    part = derived_id("task", "task_parent", 1, 0)

    def taken() -> bool:
        with backbone.database.begin() as uow:
            return uow.tasks.head(part) is not None

    eventually(taken)
    forged = SubmitTask(instruction="x", parent_task_id="task_parent", tools=("no_such_tool",))
    post(backbone, seal(forged, task_id=part, tenant="stranger"))

    def buried() -> bool:
        with backbone.database.begin() as uow:
            return len(uow.dead_letters.list()) == 1

    eventually(buried)
    assert observations(backbone) == []
