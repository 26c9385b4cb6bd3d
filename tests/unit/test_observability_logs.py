"""Log lines: their two forms, their context, and what they cannot do."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.observability import logs, names
from longstride.observability.context import bind, log_fields
from longstride.observability.log_line import LogLine
from longstride.observability.logs import LogFormat
from longstride.observability.redact import Redactor, hiding
from longstride.observability.traceparent import SpanRef

AT = 1_767_268_800_123_000_000  # 2026-01-01T12:00:00.123Z, by `date -u -d @1767268800`
log = logging.getLogger("services.planner")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    top = logging.getLogger()
    before, level = list(top.handlers), top.level
    yield
    top.handlers[:] = before
    top.setLevel(level)


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def test_json_lines_carry_task_step_tenant_service_and_extras(out: io.StringIO) -> None:
    logs.configure("INFO", "json", out)
    about = {names.SERVICE_NAME: "planner", names.TASK_ID: "task_1", names.STEP: 4, names.TENANT: "acme"}
    with bind({**about, names.MESSAGE_TYPE: None}):
        log.info("decided %d things", 3, extra={"queue": "planner", "cost": {"usd": 0.1}})
    line = json.loads(out.getvalue())
    time = line.pop("time")
    assert line == {
        "level": "INFO",
        "logger": "services.planner",
        "message": "decided 3 things",
        "service": "planner",
        "task_id": "task_1",
        "step": 4,
        "tenant": "acme",
        "queue": "planner",
        "cost": {"usd": 0.1},
    }
    assert time.endswith("+00:00")


def test_bound_fields_end_with_their_block() -> None:
    with bind({names.TASK_ID: "task_1", names.STEP: 1}):
        with bind({names.STEP: 2}):
            assert log_fields() == {"task_id": "task_1", "step": 2}
        assert log_fields() == {"task_id": "task_1", "step": 1}
    assert log_fields() == {}


def test_secrets_go_from_messages_fields_and_stacks(out: io.StringIO) -> None:
    logs.configure("INFO", "json", out, Redactor(["the-known-secret"]))
    try:
        raise ValueError("password=hunter2")
    except ValueError:
        log.exception(
            "token=%s", "abcdef", extra={"api_key": "k-123", "url": "amqp://u:hunter2@h/", "x": "the-known-secret"}
        )
    text = out.getvalue().replace('raise ValueError(\\"password=hunter2', "")
    assert not any(secret in text for secret in ("hunter2", "abcdef", "k-123", "the-known-secret"))
    assert "ValueError" in json.loads(out.getvalue())["stack"]


@pytest.mark.parametrize(
    ("log_format", "stream", "is_json"),
    [
        ("auto", io.StringIO(), True),
        ("auto", Terminal(), False),
        ("json", Terminal(), True),
        ("human", io.StringIO(), False),
    ],
)
def test_the_form_suits_the_stream(log_format: LogFormat, stream: io.StringIO, is_json: bool) -> None:
    logs.configure("INFO", log_format, stream)
    log.info("hello")
    assert stream.getvalue().startswith("{") is is_json


@pytest.mark.parametrize(("no_color", "coloured"), [(False, True), (True, False)])
def test_colour_is_for_terminals_that_want_it(no_color: bool, coloured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    logs.configure("INFO", "human", stream)
    log.error("hello")
    assert ("\033[31m" in stream.getvalue()) is coloured


def test_a_human_line_names_service_task_and_step(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"service": "planner", "task_id": "task_1", "step": 0, "tenant": "default", "message": "generated"}
    line = LogLine(AT, "WARNING", "services.planner", "stuck", SpanRef(1, 2), fields)
    assert logs.render_human(line).partition(" ")[2] == "WARNING planner task_1 step 0: stuck message=generated"
    assert logs.render_human(LogLine(AT, "INFO", "kombu", "hello")).partition(" ")[2] == "INFO    kombu: hello"


def test_a_json_line_names_trace_and_span() -> None:
    line = json.loads(logs.render_json(LogLine(AT, "INFO", "x", "hello", SpanRef(0xAB, 0xCD))))
    assert line["time"] == "2026-01-01T12:00:00.123+00:00"
    assert line["trace_id"] == "000000000000000000000000000000ab"
    assert line["span_id"] == "00000000000000cd"


@settings(deadline=None)
@given(st.text())
def test_no_text_makes_two_lines_or_steers_a_terminal(text: str) -> None:
    line = LogLine(AT, "INFO", "x", text, fields={"queue": text})
    human, machine = logs.render_human(line), logs.render_json(line)
    assert human.isprintable()
    assert not {"\n", "\r", "\033"} & set(machine)
    assert json.loads(machine)["message"].encode("utf-8", "replace") == text.encode("utf-8", "replace")


def test_threads_of_no_service_in_particular_name_the_process_s(out: io.StringIO) -> None:
    logs.configure("INFO", "json", out, service="planner")
    log.info("one")
    with bind({names.SERVICE_NAME: "tool-executor"}):
        log.info("two")
    assert [json.loads(line)["service"] for line in out.getvalue().splitlines()] == ["planner", "tool-executor"]


@pytest.mark.parametrize(("level", "heard"), [("INFO", False), ("DEBUG", True)])
def test_libraries_that_tell_of_every_message_are_hushed(level: str, heard: bool, out: io.StringIO) -> None:
    logs.configure(level, "json", out)
    logging.getLogger("celery.worker.strategy").info("Task received")
    assert bool(out.getvalue()) is heard
    logging.getLogger("celery.worker").warning("lost the broker")
    assert "lost the broker" in out.getvalue()


def test_configuring_again_replaces(out: io.StringIO) -> None:
    first = io.StringIO()
    logs.configure("INFO", "json", first)
    logs.configure("WARNING", "json", out)
    log.info("quiet")
    log.warning("loud")
    assert first.getvalue() == ""
    assert [json.loads(line)["message"] for line in out.getvalue().splitlines()] == ["loud"]


def test_a_line_is_cut_at_a_length(out: io.StringIO) -> None:
    logs.configure("INFO", "json", out)
    log.info("x" * 1_000_000)
    assert len(out.getvalue()) < 20_000


def test_a_field_may_not_hide_the_message_or_level(out: io.StringIO) -> None:
    logs.configure("INFO", "json", out)
    with bind({names.TASK_ID: "task_1"}):
        log.info("real", extra={"level": "fake", "time": "never", "logger": "other", "task_id": "task_2"})
    line = json.loads(out.getvalue())
    assert (line["message"], line["level"], line["logger"]) == ("real", "INFO", "services.planner")


def test_a_mistaken_call_is_reported_and_not_raised(out: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    handler = logs.configure("INFO", "json", out)
    handler.handle(logging.makeLogRecord({"msg": "%d things", "args": ("three",)}))
    assert "TypeError" in capsys.readouterr().err


def test_what_the_current_work_hides_is_in_none_of_its_lines(out: io.StringIO) -> None:
    logs.configure("INFO", "json", out)
    for number in range(2):
        with hiding(lambda text: text.replace("AK4711", "[gone]")):
            try:
                raise ValueError("AK4711 broke")
            except ValueError:
                log.exception("seen AK4711", extra={"said": ["AK4711"], "number": number})
    log.info("AK4711 again")
    first, second, after = map(json.loads, out.getvalue().splitlines())
    assert (first["message"], first["said"]) == ("seen [gone]", ["[gone]"])
    assert "AK4711" not in json.dumps([first, second])
    assert after["message"] == "AK4711 again"
