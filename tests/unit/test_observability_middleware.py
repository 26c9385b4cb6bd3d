"""Messages handled under the middleware: one tree a task, and the edges of the flow proven by it."""

import io
import json
import logging
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.envelope import Envelope, seal
from longstride.contracts.flow import FLOW, Service
from longstride.contracts.ids import derived_id
from longstride.contracts.model import Contract
from longstride.contracts.v1.action import Action, Observation, Usage
from longstride.contracts.v1.commands import ExecuteAction, Generate, Sampling, SubmitTask
from longstride.contracts.v1.context import ContextHead
from longstride.contracts.v1.events import ActionExecuted, Generated, PolicyPublished, TaskEnded
from longstride.contracts.v1.limits import SandboxLimits
from longstride.observability import logs, names, trace_family
from longstride.observability.edges import Edge, expected_edges, observed_edges
from longstride.observability.metering import count
from longstride.observability.middleware import handler_spans, work_spans
from longstride.observability.propagation import parent_for, stamped
from longstride.observability.publishing import published
from longstride.observability.settings import TelemetrySettings
from longstride.observability.setup import Telemetry, setup
from longstride.observability.span_record import MemorySpans, SpanRecord
from longstride.observability.spans import current_traceparent, root, segment_root, span
from longstride.observability.trace_tree import build

CLIENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
GENERATE = Generate(
    step=1, policy=None, track="fast", context=ContextHead(), tools=("shell",), sampling=Sampling(), timeout_s=10
)
EXECUTE = ExecuteAction(
    step=1, action=Action(tool="shell"), tools=("shell",), workspace=None, limits=SandboxLimits(), isolation="process"
)


@dataclass
class Delivery:
    """As ``messaging.handling.DeliveryInfo``."""

    queue: str


class Unit:
    """As ``storage.unit_of_work.UnitOfWork``: what is asked for happens after the commit alone."""

    def __init__(self) -> None:
        self._after_commit: list[Callable[[], None]] = []

    def after_commit(self, callback: Callable[[], None]) -> None:
        self._after_commit.append(callback)

    def commit(self) -> None:
        for callback in self._after_commit:
            callback()


@dataclass
class Held:
    """As ``messaging.lease.HeldLease``."""

    envelope: Envelope


@pytest.fixture
def store() -> MemorySpans:
    return MemorySpans()


@pytest.fixture
def planner(store: MemorySpans) -> Iterator[Telemetry]:
    top = logging.getLogger()
    before, level = list(top.handlers), top.level
    telemetry = setup("planner", TelemetrySettings(otlp_endpoint=None, metrics_port=0), writer=store)
    yield telemetry
    telemetry.shutdown(1)
    top.handlers[:] = before
    top.setLevel(level)


def one(spans: list[SpanRecord], name: str) -> SpanRecord:
    (found,) = [span for span in spans if span.name == name]
    return found


def test_a_handled_message_is_a_consumer_span_under_its_task_s_root(planner: Telemetry, store: MemorySpans) -> None:
    made_by = trace_family.root("task_1")._replace(span_id=0xABCD)
    envelope = seal(
        Generated(step=3, text="", policy="builtin"),
        task_id="task_1",
        session_id="session_1",
        tenant="acme",
        traceparent=str(made_by),
        causation_id="msg_0",
        occurred_at=datetime.now(UTC) - timedelta(seconds=2),
        attempt=2,
    )
    seen: list[Envelope] = []

    def handle(envelope: Envelope, message: Generated, uow: object, delivery: Delivery) -> str:
        seen.append(envelope)
        return "done"

    assert (
        handler_spans(planner, "planner")(handle)(envelope, envelope.message(), Unit(), Delivery("longstride.planner"))
        == "done"
    )
    assert planner.flush(10)
    (process,) = store.all()
    assert (process.name, process.kind, process.service, process.task_id, process.step) == (
        "process planner",
        "consumer",
        "planner",
        "task_1",
        3,
    )
    assert process.parent_span_id == f"{trace_family.root('task_1').span_id:016x}"
    assert [link["span_id"] for link in process.links] == ["000000000000abcd"]
    waited = process.attributes.pop("longstride.queue.wait_ms")
    assert 2000 <= waited < 60_000
    assert process.attributes == {
        "longstride.task.id": "task_1",
        "longstride.step": 3,
        "longstride.tenant": "acme",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "longstride.planner",
        "messaging.message.id": envelope.message_id,
        "longstride.message.type": "generated",
        "longstride.message.causation_id": "msg_0",
        "longstride.attempt": 2,
    }
    assert seen[0].traceparent is not None
    assert seen[0].traceparent[3:52] == f"{process.trace_id}-{process.span_id}"
    assert seen[0].model_copy(update={"traceparent": envelope.traceparent}) == envelope


def test_log_lines_of_a_handler_name_task_step_message_and_trace(planner: Telemetry) -> None:
    out = io.StringIO()
    logs.configure("INFO", "json", out)
    envelope = seal(EXECUTE, task_id="task_1", tenant="acme")

    def work(envelope: Envelope, message: ExecuteAction, held: Held) -> None:
        logging.getLogger("services.tool_executor").info("running")

    work_spans(planner.beside("tool-executor"), "tool-executor")(work)(envelope, EXECUTE, Held(envelope))
    line = json.loads(out.getvalue())
    about = {key: line[key] for key in ("service", "task_id", "step", "tenant", "message", "trace_id")}
    assert about == {
        "service": "tool-executor",
        "task_id": "task_1",
        "step": 1,
        "tenant": "acme",
        "message": "running",
        "trace_id": f"{trace_family.root('task_1').trace_id:032x}",
    }


def test_the_answer_to_a_command_links_to_the_worker(planner: Telemetry, store: MemorySpans) -> None:
    command = seal(EXECUTE, task_id="task_1", traceparent=str(trace_family.root("task_1")))
    held = Held(command)
    work_spans(planner.beside("tool-executor"), "tool-executor")(lambda envelope, message, held: None)(
        command, EXECUTE, held
    )
    answer = held.envelope.follow(ActionExecuted(step=1))
    assert planner.flush(10)
    (process,) = store.all()
    assert answer.traceparent is not None
    assert answer.traceparent[3:52] == f"{process.trace_id}-{process.span_id}"


def test_a_failing_handler_fails_its_span_and_the_error_goes_on(planner: Telemetry, store: MemorySpans) -> None:
    def handle(*_: object) -> None:
        raise LookupError("there is no task")

    envelope = seal(GENERATE, task_id="task_1")
    with pytest.raises(LookupError):
        handler_spans(planner, "planner")(handle)(envelope, GENERATE, Unit(), Delivery("q"))
    assert planner.flush(10)
    assert store.all()[0].status_detail == "LookupError: there is no task"


def test_a_submission_without_a_task_id_is_already_in_its_trace() -> None:
    submit = seal(SubmitTask(instruction="count"), message_id="msg_7")
    assert parent_for(submit) == str(trace_family.root(derived_id("task", "msg_7")))


def test_a_client_s_own_trace_is_linked_and_not_joined(planner: Telemetry, store: MemorySpans) -> None:
    submit = seal(SubmitTask(instruction="count"), task_id="task_1", traceparent=CLIENT)
    handler_spans(planner, "planner")(lambda *_: None)(submit, submit.message(), Unit(), Delivery("longstride.planner"))
    assert planner.flush(10)
    (process,) = store.all()
    assert process.trace_id == f"{trace_family.root('task_1').trace_id:032x}"
    assert [link["trace_id"] for link in process.links] == [CLIENT[3:35]]


def test_a_message_about_no_task_belongs_under_its_producer() -> None:
    ref = ArtifactRef(key="a/b/c", sha256="0" * 64, size=1)
    event = PolicyPublished(policy="builtin", policy_version=2, parent_version=1, manifest=ref)
    assert parent_for(seal(event, traceparent=CLIENT)) == CLIENT


def test_a_new_segment_carries_on_in_the_workers(planner: Telemetry, store: MemorySpans) -> None:
    """The envelope that names a later segment's root keeps it, so that the worker's span falls into that segment."""
    first = root("task_1")
    envelope = seal(GENERATE, task_id="task_1", traceparent=first)
    with planner.activate(), span(names.DECIDE, parent=first):
        here = current_traceparent()
        assert stamped(envelope).traceparent == here
        later = segment_root("task_1", 201, 200, first)
        onward = stamped(envelope.model_copy(update={"traceparent": later}))
    assert onward.traceparent == later
    assert parent_for(onward) == later
    work_spans(planner.beside("model-worker"), "model-worker")(lambda *_: None)(onward, GENERATE, Held(onward))
    assert planner.flush(10)
    worked = one(store.all(), "process generate.{track}")
    assert trace_family.segment_of("task_1", f"00-{worked.trace_id}-{worked.span_id}-01") == 1


def test_a_publication_is_a_producer_span_under_its_maker(planner: Telemetry, store: MemorySpans) -> None:
    envelope = seal(GENERATE, task_id="task_1", traceparent=str(trace_family.root("task_1")))
    wire = envelope.encode().decode()
    published(planner, wire, "generate.fast", started_ns=10, ended_ns=30)
    published(planner, wire, "amq.gen-xyz", reply=True, started_ns=10, ended_ns=30, error="unroutable")
    assert planner.flush(10)
    sent, lost = one(store.all(), "send generate.fast"), one(store.all(), "send reply")
    assert (sent.kind, sent.task_id, sent.step, sent.ended_ns - sent.started_ns) == ("producer", "task_1", 1, 20)
    assert sent.parent_span_id == f"{trace_family.root('task_1').span_id:016x}"
    assert sent.attributes["messaging.message.body.size"] == len(wire)
    assert (lost.status, lost.status_detail) == ("error", "unroutable")


# --- numbers -------------------------------------------------------------------------------------------------------


class Counted:
    """As ``Metrics``; keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *about: self.told.append((name, *about))


USAGE = Usage(input_tokens=512, output_tokens=40, wall_ms=250)


@pytest.mark.parametrize(
    ("consumer", "message", "attempt", "told"),
    [
        (
            "planner",
            Generated(step=1, text="", policy="builtin", usage=USAGE),
            1,
            [
                ("phase_ended", "generate", "ok", 0.25),
                ("model_call", "builtin", 512, 40),
                ("attempts_lost", "generate", "retried", 0),
            ],
        ),
        (
            "planner",
            Generated(step=1, text="", policy="builtin", format_error="not JSON"),
            3,
            [
                ("step_ended", "format_error"),
                ("phase_ended", "generate", "format_error", 0),
                ("model_call", "builtin", 0, 0),
                ("attempts_lost", "generate", "retried", 2),
            ],
        ),
        (
            "planner",
            ActionExecuted(step=1, observation=Observation(status="timeout", text=""), usage=USAGE),
            1,
            [
                ("step_ended", "timeout"),
                ("phase_ended", "execute", "timeout", 0.25),
                ("attempts_lost", "execute", "retried", 0),
            ],
        ),
        ("planner", ActionExecuted(step=1, error="4 workers died"), 4, [("attempts_lost", "execute", "given_up", 4)]),
        ("planner", ActionExecuted(step=1, needs_review=True), 1, [("attempts_lost", "execute", "review", 1)]),
        ("telemetry", TaskEnded(outcome="failed", reason="stuck"), 1, [("task_ended", "failed", "stuck")]),
        ("planner", TaskEnded(outcome="failed", reason="stuck"), 1, []),
    ],
)
def test_a_message_counts_once_at_the_one_who_commits_it(
    consumer: Service, message: Contract, attempt: int, told: list[tuple[object, ...]]
) -> None:
    counted = Counted()
    count(counted, consumer, seal(message, task_id="task_1", attempt=attempt), message)  # type: ignore[arg-type]
    assert counted.told == told


def test_nothing_is_counted_before_the_commit(planner: Telemetry) -> None:
    message = Generated(step=1, text="", policy="builtin", usage=USAGE)
    rolled_back, committed = Unit(), Unit()
    for unit in (rolled_back, committed):
        handler_spans(planner, "planner")(lambda *_: None)(
            seal(message, task_id="task_1"), message, unit, Delivery("q")
        )
    assert tokens(planner) == 0
    committed.commit()
    assert tokens(planner) == 552


def tokens(telemetry: Telemetry) -> float:
    """Those that ``/metrics`` tells of."""
    with urllib.request.urlopen(f"http://127.0.0.1:{telemetry.port}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        samples = [sample for family in families for sample in family.samples]
    return sum(sample.value for sample in samples if sample.name == "gen_ai_client_token_usage_sum")


# --- edges ---------------------------------------------------------------------------------------------------------


def test_the_edges_are_the_flow_s() -> None:
    edges = expected_edges()
    assert len(edges) == sum(len(row.producers) for row in FLOW)
    assert Edge("planner", "generate", "model-worker") in edges
    assert Edge("timers", "expire_task", "planner") in edges
    assert str(Edge("planner", "generate", "model-worker")) == "planner -generate-> model-worker"
    assert {edge.consumer for edge in expected_edges({"planner", "trainer"})} == {"planner", "trainer"}


def play(planner: Telemetry) -> None:
    """One step of a task through three services, as their processes would handle it."""
    worker, executor = planner.beside("model-worker"), planner.beside("tool-executor")
    onward: list[Envelope] = []

    def decide(envelope: Envelope, message: object, uow: object, delivery: Delivery) -> None:
        if isinstance(message, SubmitTask):
            root("task_1")
        following = {
            SubmitTask: GENERATE,
            Generated: EXECUTE,
            ActionExecuted: TaskEnded(outcome="succeeded", reason="submitted"),
        }
        with span(names.DECIDE, envelope.type):
            onward.append(stamped(envelope.follow(following[type(message)])))

    def work(answer: object) -> object:
        def carry_out(envelope: Envelope, message: object, held: Held) -> None:
            onward.append(held.envelope.follow(answer))  # type: ignore[arg-type]

        return carry_out

    decider = handler_spans(planner, "planner")(decide)
    think = work_spans(worker, "model-worker")(work(Generated(step=1, text="", policy="scripted")))  # type: ignore[arg-type]
    act = work_spans(executor, "tool-executor")(work(ActionExecuted(step=1)))  # type: ignore[arg-type]
    submit = seal(SubmitTask(instruction="count"), task_id="task_1")
    decider(submit, submit.message(), Unit(), Delivery("longstride.planner"))
    think(onward[-1], onward[-1].message(), Held(onward[-1]))
    decider(onward[-1], onward[-1].message(), Unit(), Delivery("longstride.planner"))
    act(onward[-1], onward[-1].message(), Held(onward[-1]))
    decider(onward[-1], onward[-1].message(), Unit(), Delivery("longstride.planner"))


def test_a_step_through_three_services_proves_its_edges(planner: Telemetry, store: MemorySpans) -> None:
    play(planner)
    assert planner.flush(10)
    assert observed_edges(store.all()) == {
        Edge("client", "submit_task", "planner"),
        Edge("planner", "generate", "model-worker"),
        Edge("model-worker", "generated", "planner"),
        Edge("planner", "execute_action", "tool-executor"),
        Edge("tool-executor", "action_executed", "planner"),
    }
    assert observed_edges(store.all()) <= expected_edges()


def test_and_its_tree_is_flat(planner: Telemetry, store: MemorySpans) -> None:
    play(planner)
    assert planner.flush(10)
    tree = build(store.of_task("task_1"))
    handled = [(child.name, child.service) for child in tree.children]
    assert handled == [
        ("process planner", "planner"),
        ("process generate.{track}", "model-worker"),
        ("process planner", "planner"),
        ("process execute", "tool-executor"),
        ("process planner", "planner"),
    ]
    assert [child.name for child in tree.children[0].children] == ["decide submit_task"]


def test_a_lost_link_shows_as_an_edge_that_the_flow_does_not_have(planner: Telemetry, store: MemorySpans) -> None:
    play(planner)
    assert planner.flush(10)
    without = [span for span in store.all() if span.service != "model-worker"]
    assert observed_edges(without) - expected_edges() == {Edge("client", "generated", "planner")}


def test_a_role_speaks_for_a_part_inside_another_service(planner: Telemetry, store: MemorySpans) -> None:
    from longstride.contracts.v1.commands import ExpireTask, UpdatePolicy

    ref = ArtifactRef(key="a/b/c", sha256="0" * 64, size=1)
    with planner.beside("telemetry").activate(), span(names.REWARD):
        update = stamped(seal(UpdatePolicy(batch_id="b", batch=ref, policy="builtin", base_version=1)))
    work_spans(planner.beside("model-worker"), "trainer")(lambda *_: None)(update, update.message(), Held(update))
    with planner.activate(), span(names.DECIDE):
        expire = stamped(seal(ExpireTask(), task_id="task_1"))
    handler_spans(planner, "planner")(lambda *_: None)(expire, expire.message(), Unit(), Delivery("longstride.planner"))
    assert planner.flush(10)
    assert observed_edges(store.all()) == {
        Edge("telemetry", "update_policy", "trainer"),
        Edge("timers", "expire_task", "planner"),
    }
