"""Spans end to end: made with the library, read from the in-memory store or an OTLP receiver."""

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import pytest

from longstride.observability import names, trace_family
from longstride.observability.context import bind
from longstride.observability.publishing import published
from longstride.observability.redact import hiding
from longstride.observability.settings import TelemetrySettings
from longstride.observability.setup import Telemetry, setup
from longstride.observability.span_export import json_safe
from longstride.observability.span_record import MemorySpans, SpanRecord, SpanWriter
from longstride.observability.spans import (
    current_traceparent,
    finished_span,
    root,
    segment_root,
    set_attributes,
    span,
)
from longstride.observability.traceparent import parse
from tests.support.eventually import eventually
from tests.support.otlp_receiver import OtlpReceiver, attributes, otlp_receiver

QUIET = TelemetrySettings(otlp_endpoint=None, metrics_port=None, log_format="json")
CLIENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
Start = Callable[..., Telemetry]


@pytest.fixture
def start() -> Iterator[Start]:
    """``setup``, undone after the test."""
    started: list[Telemetry] = []
    top = logging.getLogger()
    before, level = list(top.handlers), top.level

    def begin(
        service: str = "planner", settings: TelemetrySettings = QUIET, writer: SpanWriter | None = None
    ) -> Telemetry:
        started.append(setup(service, settings, writer=writer, incarnation="host-1_0199"))
        return started[-1]

    yield begin
    for telemetry in started:
        telemetry.shutdown(0.1)
    top.handlers[:] = before
    top.setLevel(level)


@pytest.fixture
def store() -> MemorySpans:
    return MemorySpans()


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as receiver:
        yield receiver


def settings_for(receiver: OtlpReceiver, **changes: object) -> TelemetrySettings:
    return TelemetrySettings.model_validate({**QUIET.model_dump(), "otlp_endpoint": receiver.url, **changes})


def one(spans: Sequence[SpanRecord], name: str) -> SpanRecord:
    (found,) = [span for span in spans if span.name == name]
    return found


def test_a_span_is_stored_with_its_parent_service_and_bound_fields(start: Start, store: MemorySpans) -> None:
    telemetry = start("tool-executor", writer=store)
    before = time.time_ns()
    with bind({names.TASK_ID: "task_1", names.STEP: 3, names.TENANT: "acme"}), span(names.PROCESS, "execute") as outer:
        set_attributes(outer, {names.STATUS: "ok", names.LIMIT: None})
        with span(names.EXECUTE_TOOL, "shell", attributes={names.TOOL_NAME: "shell", names.EXIT_CODE: None}):
            pass
    assert telemetry.flush(10)
    outer_span, tool = one(store.all(), "process execute"), one(store.all(), "execute_tool shell")
    assert tool.parent_span_id == outer_span.span_id
    assert tool.trace_id == outer_span.trace_id
    assert (tool.service, tool.task_id, tool.step, tool.kind, tool.status) == (
        "tool-executor",
        "task_1",
        3,
        "internal",
        "unset",
    )
    assert tool.attributes == {
        "longstride.task.id": "task_1",
        "longstride.step": 3,
        "longstride.tenant": "acme",
        "gen_ai.tool.name": "shell",
    }
    assert outer_span.attributes["longstride.status"] == "ok"
    assert before <= outer_span.started_ns <= tool.started_ns <= tool.ended_ns <= outer_span.ended_ns


def test_an_explicit_parent_and_links_come_from_traceparents(start: Start, store: MemorySpans) -> None:
    telemetry = start(writer=store)
    parent = str(trace_family.root("task_1"))
    with span(names.PROCESS, "planner", parent=parent, links=[CLIENT, None, "nonsense"], kind="consumer"):
        made = current_traceparent()
    assert telemetry.flush(10)
    (span_,) = store.all()
    assert (span_.trace_id, span_.parent_span_id) == (parent[3:35], parent[36:52])
    assert [(link["trace_id"], link["span_id"]) for link in span_.links] == [(CLIENT[3:35], CLIENT[36:52])]
    assert made is not None
    assert made[3:52] == f"{span_.trace_id}-{span_.span_id}"
    assert span_.kind == "consumer"


def test_an_unsampled_client_does_not_switch_the_record_of_a_task_off(start: Start, store: MemorySpans) -> None:
    telemetry = start(writer=store)
    with span(names.PROCESS, parent=CLIENT):
        pass
    assert telemetry.flush(10)
    assert len(store.all()) == 1


def test_an_exception_is_recorded_and_goes_on(start: Start, store: MemorySpans) -> None:
    telemetry = start(writer=store)
    with pytest.raises(ValueError, match="hunter2"), span(names.CHAT, "builtin"):
        raise ValueError("cannot log in with password=hunter2 to amqp://u:hunter2@host/")
    assert telemetry.flush(10)
    (failed,) = store.all()
    assert failed.status == "error"
    assert failed.status_detail == "ValueError: cannot log in with password=[redacted] to amqp://u:[redacted]@host/"
    assert failed.attributes["error.type"] == "ValueError"
    (event,) = failed.events
    assert event["name"] == "exception"
    assert event["attributes"]["exception.type"] == "ValueError"
    assert "test_observability_spans.py" in event["attributes"]["exception.stacktrace"]
    assert "hunter2" not in json.dumps(failed.events).replace('match=\\"hunter2', "").replace(
        "password=hunter2 to amqp", ""
    )


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "error", [Unprintable(), KeyboardInterrupt(), SystemExit(3), ExceptionGroup("all", [ValueError("x")])]
)
def test_whatever_is_raised_is_what_arrives(error: BaseException, start: Start, store: MemorySpans) -> None:
    telemetry = start(writer=store)
    with pytest.raises(type(error)) as caught, span(names.DECIDE):
        raise error
    assert caught.value is error
    assert telemetry.flush(10)
    assert store.all()[0].status == "error"


@pytest.mark.parametrize(("capture", "kept"), [(False, False), (True, True)])
def test_content_leaves_only_on_request(capture: bool, kept: bool, start: Start, store: MemorySpans) -> None:
    telemetry = start(settings=QUIET.model_copy(update={"capture_content": capture}), writer=store)
    with span(names.CHAT, "builtin", attributes={names.INPUT_MESSAGES: "the whole prompt", names.INPUT_TOKENS: 12}):
        pass
    assert telemetry.flush(10)
    (chat,) = store.all()
    assert ("gen_ai.input.messages" in chat.attributes) is kept
    assert chat.attributes["gen_ai.usage.input_tokens"] == 12


def test_what_the_current_work_hides_is_in_no_error_of_a_span(start: Start, store: MemorySpans) -> None:
    telemetry = start(writer=store)
    take_out = hiding(lambda text: text.replace("AK4711", "[gone]"))
    with pytest.raises(ValueError, match="AK4711"), take_out, span(names.EXECUTE_TOOL, "shell"):
        raise ValueError("it printed AK4711")
    assert telemetry.flush(10)
    (tool,) = store.all()
    assert "AK4711" not in json.dumps([tool.events, tool.status_detail, tool.attributes])
    assert tool.status_detail == "ValueError: it printed [gone]"


def test_secrets_leave_in_no_field(start: Start, store: MemorySpans) -> None:
    telemetry = start(writer=store)
    key = "sk-" + "a1B2" * 8
    with span(
        names.CHAT, f"remote:https://u:{key}@h/v1", attributes={names.POLICY: f"key {key}", names.EVENTS: [key]}
    ) as s:
        s.add_event(names.EXCEPTION, {names.EXCEPTION_MESSAGE: f"Bearer {key}"})
    assert telemetry.flush(10)
    assert key not in repr(store.all())


def test_the_root_of_a_task_is_the_same_span_whoever_writes_it(start: Start, store: MemorySpans) -> None:
    telemetry = start(writer=store)
    first = root("task_1", session_id="session_1", tenant="acme", links=[CLIENT])
    with span(names.DECIDE):
        again = root("task_1", session_id="session_1", tenant="acme", links=[CLIENT])
    assert first == again == str(trace_family.root("task_1"))
    assert telemetry.flush(10)
    marker = one(store.all(), "invoke_agent longstride")
    assert marker.parent_span_id is None
    assert marker.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "longstride",
        "gen_ai.conversation.id": "session_1",
        "longstride.task.id": "task_1",
        "longstride.tenant": "acme",
        "longstride.trace.segment": 0,
    }
    assert marker.links[0]["trace_id"] == CLIENT[3:35]
    assert marker.trace_id != CLIENT[3:35]


def test_a_long_task_goes_on_in_linked_segments(start: Start, store: MemorySpans) -> None:
    telemetry = start(writer=store)
    current = root("task_1")
    seen = [current := segment_root("task_1", step, 200, current) for step in range(1, 402)]
    assert telemetry.flush(10)
    assert [seen.index(each) + 1 for each in dict.fromkeys(seen)] == [1, 201, 401]
    markers = sorted(store.all(), key=lambda marker: marker.attributes["longstride.trace.segment"])
    assert len(markers) == 3
    for before, after in pairwise(markers):
        assert [(link["trace_id"], link["span_id"]) for link in after.links] == [(before.trace_id, before.span_id)]
        assert after.trace_id != before.trace_id


def test_a_finished_span_has_the_times_it_is_given(start: Start, store: MemorySpans) -> None:
    telemetry = start(writer=store)
    finished_span(
        names.SEND,
        "generate.fast",
        parent=CLIENT,
        started_ns=10**18,
        ended_ns=10**18 + 5,
        attributes={},
        error="unroutable",
    )
    assert telemetry.flush(10)
    (sent,) = store.all()
    assert (sent.started_ns, sent.ended_ns, sent.status, sent.status_detail) == (
        10**18,
        10**18 + 5,
        "error",
        "unroutable",
    )


def test_without_setup_a_span_goes_nowhere_and_hands_the_context_on() -> None:
    assert current_traceparent() is None
    parent = root("task_1")
    with span(names.DECIDE, parent=parent):
        assert parse(current_traceparent()) == trace_family.root("task_1")
    with span(names.DECIDE) as silent:
        assert not silent.is_recording()


def test_services_of_one_process_are_told_apart(start: Start, store: MemorySpans) -> None:
    planner = start("planner", writer=store)
    executor = planner.beside("tool-executor")

    def work() -> None:
        with executor.activate(), span(names.EXECUTE_TOOL, "shell"):
            pass

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    with planner.activate(), span(names.DECIDE):
        pass
    assert planner.flush(10)
    assert {(s.name, s.service) for s in store.all()} == {
        ("execute_tool shell", "tool-executor"),
        ("decide", "planner"),
    }


def test_values_that_postgresql_refuses_are_made_safe(start: Start, store: MemorySpans) -> None:
    telemetry = start(writer=store)
    with span(names.DECIDE, "a\0b", attributes={names.REASON: "nul \0, half \ud800", names.COST_USD: float("inf")}):
        pass
    assert telemetry.flush(10)
    (span_,) = store.all()
    assert span_.name == "decide a�b"
    assert span_.attributes == {"longstride.reason": "nul �, half ?", "longstride.cost_usd": "inf"}


def test_json_safe_leaves_the_rest_alone() -> None:
    assert json_safe({"a": [1, 2.5, True, None, "x"], 2: b"\xff", "s": {3}}) == {
        "a": [1, 2.5, True, None, "x"],
        "2": "ff",
        "s": [3],
    }


# --- OTLP ----------------------------------------------------------------------------------------------------------


def test_otlp_carries_spans_with_resource_links_status_and_no_secret(start: Start, receiver: OtlpReceiver) -> None:
    telemetry = start("model-worker", settings_for(receiver))
    with (
        suppress(ValueError),
        span(
            names.CHAT,
            "builtin",
            links=[CLIENT],
            attributes={names.OUTPUT_TOKENS: 40, names.OUTPUT_MESSAGES: "no"},
            kind="client",
        ),
    ):
        raise ValueError("token=abcdef")
    assert telemetry.flush(10)
    about, _ = receiver.spans[0]
    assert about["service.name"] == "longstride-model-worker"
    assert about["service.instance.id"] == "host-1_0199"
    assert about["service.version"]
    chat = receiver.span("chat builtin")
    assert chat.kind == 3  # SPAN_KIND_CLIENT
    assert attributes(chat.attributes) == {"gen_ai.usage.output_tokens": 40, "error.type": "ValueError"}
    assert (chat.status.code, chat.status.message) == (2, "ValueError: token=[redacted]")
    assert chat.links[0].trace_id.hex() == CLIENT[3:35]
    assert b"abcdef" not in chat.SerializeToString().replace(b'raise ValueError("token=abcdef', b"")


def test_otlp_carries_metrics(start: Start, receiver: OtlpReceiver) -> None:
    telemetry = start(settings=settings_for(receiver, metrics_interval_s=0.05))
    telemetry.metrics.task_ended("succeeded", "checks_passed")
    telemetry.metrics.model_call("builtin", 512, 40)

    def ended() -> dict[frozenset[object], int]:
        """The latest of each series: the first push may have been under way before anything was counted."""
        told = (metric for _, metric in receiver.metrics if metric.name == "longstride.tasks.ended")
        points = (point for metric in told for point in metric.sum.data_points)
        return {frozenset(attributes(point.attributes).values()): point.as_int for point in points}

    eventually(lambda: {"longstride.tasks.ended", "gen_ai.client.token.usage"} <= {m.name for _, m in receiver.metrics})
    eventually(lambda: ended().get(frozenset({"succeeded", "checks_passed"})))
    assert ended()[frozenset({"succeeded", "checks_passed"})] == 1


def test_otlp_carries_log_lines_with_their_span_but_never_its_own_failures(
    start: Start, receiver: OtlpReceiver
) -> None:
    telemetry = start(settings=settings_for(receiver))
    logging.getLogger("longstride.observability.conveyor").warning("telemetry fails")
    logging.getLogger("urllib3.connectionpool").warning("retrying")
    with telemetry.activate(), bind({names.TASK_ID: "task_1"}), span(names.DECIDE):
        here = current_traceparent()
        logging.getLogger("services.planner").error("password=%s", "hunter2", extra={"queue": "planner"})
    assert telemetry.flush(10)
    ((_, record),) = receiver.logs
    assert record.body.string_value == "password=[redacted]"
    assert record.severity_text == "ERROR"
    assert here is not None
    assert f"{record.trace_id.hex()}-{record.span_id.hex()}" == here[3:52]
    assert attributes(record.attributes) == {
        "logger": "services.planner",
        "service": "planner",
        "task_id": "task_1",
        "queue": "planner",
    }


# --- outages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mood", ["refusing", "hanging", "gone"])
def test_a_dead_receiver_costs_a_step_nothing(
    mood: str, start: Start, store: MemorySpans, receiver: OtlpReceiver
) -> None:
    telemetry = start(settings=settings_for(receiver, span_queue=100), writer=store)
    if mood == "gone":
        receiver.close()
    else:
        receiver.mood = mood  # type: ignore[assignment]
    slowest = 0.0
    for _ in range(2000):
        started = time.perf_counter()
        with span(names.DECIDE):
            pass
        slowest = max(slowest, time.perf_counter() - started)
    assert slowest < 1  # no wait for the receiver, whose time-out is 5 s; a busy machine may well pause a thread
    assert telemetry.dropped["OTLP"] > 1000
    started = time.perf_counter()
    assert not telemetry.flush(0.3)
    assert not telemetry.shutdown(0.3)
    assert time.perf_counter() - started < 3, "the receiver's time-out is 5 s"
    assert len(store.all()) + telemetry.dropped["span store"] == 2000  # the other outlet is not held up


def test_a_dead_span_store_does_not_hold_otlp_up(start: Start, receiver: OtlpReceiver) -> None:
    def down(spans: Sequence[SpanRecord]) -> None:
        raise ConnectionError("the database is away")

    telemetry = start(settings=settings_for(receiver), writer=down)
    with span(names.DECIDE):
        pass
    assert not telemetry.flush(0.5)
    eventually(lambda: receiver.spans)
    assert not telemetry.shutdown(0.5)


def test_a_receiver_that_comes_back_gets_what_waited(start: Start, receiver: OtlpReceiver) -> None:
    telemetry = start(settings=settings_for(receiver))
    receiver.mood = "refusing"
    with span(names.DECIDE):
        pass
    assert not telemetry.flush(0.2)
    receiver.mood = "well"
    eventually(lambda: receiver.spans, 20)
    assert receiver.span("decide")
    assert telemetry.dropped["OTLP"] == 0


def test_shutdown_again_is_harmless_and_later_spans_go_nowhere(start: Start, store: MemorySpans) -> None:
    telemetry = start(writer=store)
    with span(names.DECIDE):
        pass
    assert telemetry.shutdown(10)
    assert telemetry.shutdown(10)
    with telemetry.activate(), span(names.PLAN):
        pass
    assert [s.name for s in store.all()] == ["decide"]


# --- processes -----------------------------------------------------------------------------------------------------


def test_a_forked_child_reports_for_itself(start: Start, receiver: OtlpReceiver) -> None:
    telemetry = start("tool-executor", settings_for(receiver, metrics_interval_s=0.05))
    with span(names.DECIDE):
        pass
    assert telemetry.flush(10)
    eventually(lambda: receiver.metrics)
    child = os.fork()
    if child == 0:
        with span(names.EXECUTE_TOOL, "shell"):
            pass
        os._exit(0 if telemetry.flush(10) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [s.name for _, s in receiver.spans] == ["decide", "execute_tool shell"]
    (parent, _), (born, _) = receiver.spans
    assert parent["service.name"] == born["service.name"]
    assert parent["longstride.incarnation"] == born["longstride.incarnation"] == "host-1_0199"
    assert {about["service.instance.id"] for about, _ in receiver.metrics} == {"host-1_0199"}  # never the child's


LEAVING = """
import sys
from longstride.observability import names
from longstride.observability.settings import TelemetrySettings
from longstride.observability.setup import setup
from longstride.observability.spans import span
setup("planner", TelemetrySettings())
with span(names.DECIDE):
    pass
"""


def test_a_process_that_just_ends_still_sends_its_last_spans(receiver: OtlpReceiver) -> None:
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
    subprocess.run([sys.executable, "-c", LEAVING], check=True, env=environment, timeout=60)
    assert receiver.span("decide")


def test_a_process_ends_in_time_when_the_receiver_hangs(receiver: OtlpReceiver) -> None:
    receiver.mood = "hanging"
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", LEAVING], check=True, env=environment, timeout=60)
    assert time.monotonic() - started < 20  # starting takes 1 to 5 s on a busy machine, the flush 2


PURE = ["names", "trace_tree", "span_record", "redact", "traceparent", "trace_family", "context", "logs", "log_line"]


@pytest.mark.parametrize("module", PURE)
def test_the_command_line_s_modules_load_no_opentelemetry(module: str) -> None:
    script = f"import sys, longstride.observability.{module}; print([m for m in sys.modules if m.startswith('opentelemetry')])"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"


def test_the_memory_store_keeps_the_first_of_two(store: MemorySpans) -> None:
    span_ = SpanRecord("t", "s", None, "a", "internal", "planner", "task_1", None, "unset", None, 1, 2)
    store([span_, replace(span_, name="b")])
    assert store.of_task("task_1") == [span_]


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318", "URL scheme should be"),
        ("LONGSTRIDE_METRICS_PORT", "70000", "less than or equal to 65535"),
        ("LONGSTRIDE_LOG_FORMAT", "xml", "'auto', 'json' or 'human'"),
        ("LONGSTRIDE_CAPTURE_CONTENT", "perhaps", "valid boolean"),
        ("LONGSTRIDE_TRACE_SEGMENT_STEPS", "0", "greater than 0"),
    ],
)
def test_a_wrong_setting_is_refused_at_start(
    variable: str, value: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=complaint):
        TelemetrySettings()


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    monkeypatch.setenv("LONGSTRIDE_LOG_LEVEL", "debug")
    monkeypatch.setenv("LONGSTRIDE_METRICS_PORT", "")
    settings = TelemetrySettings()
    assert str(settings.otlp_endpoint) == "http://collector:4318/"
    assert (settings.log_level, settings.metrics_port, settings.capture_content) == ("DEBUG", None, False)


@pytest.mark.parametrize(
    ("port", "exporter", "endpoint", "pushes"),
    [
        (9464, "none", "http://collector:4318", True),
        (9464, "none", None, False),
        (None, "none", "http://collector:4318", False),
        (None, "otlp", "http://collector:4318", True),
    ],
    ids=["read by Prometheus", "no receiver", "not wanted", "pushed anyway"],
)
def test_a_child_has_no_port_and_pushes_what_nobody_reads(
    port: int | None, exporter: str, endpoint: str | None, pushes: bool
) -> None:
    settings = TelemetrySettings(metrics_port=port, metrics_exporter=exporter, otlp_endpoint=endpoint).for_child()
    assert settings.metrics_port is None
    assert bool(settings.otlp_url("metrics")) == pushes


@pytest.mark.parametrize(
    "wire",
    [
        "{bad",
        "null",
        "7",
        "[]",
        "{}",
        '{"traceparent": "x", "task_id": "", "body": {"step": "first"}}',
        '{"body": null}',
        '{"type": [], "body": [], "traceparent": 7, "task_id": {}}',
        "[" * 100_000,
    ],
    ids=lambda wire: wire[:20],
)
def test_a_message_that_is_no_envelope_has_its_span_too(start: Start, wire: str) -> None:
    memory = MemorySpans()
    telemetry = start(writer=memory)
    published(telemetry, wire, "longstride.planner", started_ns=1, ended_ns=2)
    telemetry.flush()
    (record,) = eventually(lambda: memory.all())
    assert record.attributes[names.DESTINATION] == "longstride.planner"
    assert record.attributes[names.BODY_SIZE] == len(wire)
    assert names.MESSAGE_TYPE not in record.attributes
