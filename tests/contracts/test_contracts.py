"""What crosses a process boundary holds still: schemas, golden payloads, the flow."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.contracts.envelope import MAX_BYTES, MessageError, decode, message_type, seal
from longstride.contracts.export import SCHEMAS, schemas
from longstride.contracts.flow import FLOW
from longstride.contracts.ids import new_id, uuid7
from longstride.contracts.topology import durable_bindings
from longstride.contracts.v1 import MESSAGES
from longstride.contracts.v1.action import Action, Observation
from longstride.contracts.v1.commands import SubmitTask

GOLDEN = Path(__file__).parent / "golden" / "v1"


def test_the_committed_schemas_are_those_of_the_models() -> None:
    """After a change of contract: ``python -m longstride.contracts.export``, and read the diff: additive stays v1."""
    assert {path.name: path.read_text() for path in SCHEMAS.glob("*.json")} == schemas()


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_every_message_has_a_golden_payload_that_loads_for_ever(name: str) -> None:
    wire = (GOLDEN / f"{name}.json").read_bytes()
    envelope = decode(wire)
    again = envelope.model_copy(update={"body": envelope.message().model_dump(mode="json", exclude_none=True)})
    assert decode(again.encode()).model_dump() == again.model_dump()
    for field, value in json.loads(wire)["body"].items():
        assert field in again.body, f"{field}={value!r} was lost"


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_golden_payloads_validate_against_the_exported_schema(name: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    wire = json.loads((GOLDEN / f"{name}.json").read_text())
    jsonschema.validate(wire, json.loads((SCHEMAS / "envelope.json").read_text()))
    jsonschema.validate(wire["body"], json.loads((SCHEMAS / f"{name}.json").read_text()))


def test_the_flow_names_every_message_and_only_known_ones() -> None:
    assert {row.message for row in FLOW} == set(MESSAGES)


def test_a_message_goes_to_a_service_once() -> None:
    rows = [(row.message, row.consumer) for row in FLOW]
    assert len(set(rows)) == len(rows)


def test_every_durable_queue_belongs_to_one_consumer() -> None:
    owners: dict[str, set[str]] = {}
    for row in FLOW:
        owners.setdefault(row.queue, set()).add(row.consumer)
    assert {queue: who for queue, who in owners.items() if len(who) > 1} == {}
    assert ("longstride.planner", "submit_task") in durable_bindings()


@pytest.mark.parametrize(
    ("wire", "why"),
    [
        (b"hello", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "at most 65536"),
        (b"[" * 60_000, "not JSON"),
        (b"[]", "expected a JSON object, got list"),
        (b"{}", "message_id: Field required"),
        (b'{"message_id":"a","type":"submit_task","version":2,"body":{}}', "unknown version 2"),
        (b'{"message_id":"a","type":"fly","body":{}}', "unknown message type 'fly'"),
        (b'{"message_id":"a","type":"submit_task","body":{}}', "instruction: Field required"),
        (
            b'{"message_id":"a","type":"submit_task","body":{"instruction":"   "}}',
            "instruction: String should have at least 1",
        ),
        (
            b'{"message_id":"a","type":"submit_task","body":{"instruction":"x","limits":{"steps":0}}}',
            "limits.steps: Input should be greater than 0",
        ),
        (b'{"message_id":"a","type":"submit_task","body":{"instruction":"x","limits":{"tokens":-1}}}', "limits.tokens"),
        (b'{"message_id":"a","type":"submit_task","body":{"instruction":"x","wings":2}}', "wings: Extra inputs"),
        (
            b'{"message_id":"a","type":"submit_task","body":{"instruction":"x","inputs":[{"path":"../etc","text":""}]}}',
            "inside the workspace",
        ),
        (
            b'{"message_id":"a","type":"submit_task","body":{"instruction":"x","inputs":[{"path":"a"}]}}',
            "exactly one of text and ref",
        ),
        (
            b'{"message_id":"a","type":"submit_task","body":{"instruction":"x","limits":{"cost_usd":NaN}}}',
            "NaN is not a JSON number",
        ),
        (b'{"message_id":"a","type":"submit_task","body":{"instruction":"a\\u0000b"}}', "NUL character"),
        (b'{"message_id":"a","type":"submit_task","body":{"instruction":"a\\ud800b"}}', "lone surrogate"),
        (b'{"message_id":" ","type":"submit_task","body":{"instruction":"x"}}', "message_id"),
        (
            b'{"message_id":"a","type":"submit_task","body":{"instruction":"' + b"x" * MAX_BYTES + b'"}}',
            "at most 65536",
        ),
    ],
)
def test_a_message_that_cannot_be_read_says_what_is_wrong_and_where(wire: bytes, why: str) -> None:
    with pytest.raises(MessageError, match=why.replace("(", r"\(").replace("[", r"\[")):
        decode(wire)


@given(
    st.binary(max_size=2_000)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    ).map(lambda x: json.dumps(x).encode())
)
def test_no_bytes_raise_anything_but_a_message_error(wire: bytes) -> None:
    try:
        decode(wire)
    except MessageError:
        return


def test_an_error_never_repeats_the_value() -> None:
    with pytest.raises(MessageError) as caught:
        decode(b'{"message_id":"a","type":"submit_task","body":{"instruction":"x","policy":{"key":"hunter2"}}}')
    assert "hunter2" not in str(caught.value)


def test_a_following_message_keeps_task_session_tenant_and_names_its_cause() -> None:
    first = seal(SubmitTask(instruction="x"), task_id="t", session_id="s", tenant="acme")
    second = first.follow(SubmitTask(instruction="y"))
    assert (second.task_id, second.session_id, second.tenant, second.causation_id) == (
        "t",
        "s",
        "acme",
        first.message_id,
    )
    assert message_type(second.message()) == "submit_task"


def test_an_oversized_message_is_refused_where_it_is_made() -> None:
    many = tuple({"path": f"f{i}", "text": "x" * 30_000} for i in range(3))
    with pytest.raises(MessageError, match="put content in an artifact"):
        seal(SubmitTask(instruction="x", inputs=many)).encode()


def test_ids_sort_by_time_and_are_version_7() -> None:
    ids = [uuid7() for _ in range(50)]
    assert {(i.version, i.variant) for i in ids} == {(7, "specified in RFC 4122")}
    assert [i.int >> 80 for i in ids] == sorted(i.int >> 80 for i in ids)
    assert new_id("task").startswith("task_")


@pytest.mark.parametrize("dirt", ["a\x00b", "a\ud800b"])
def test_text_from_agents_is_made_storable(dirt: str) -> None:
    observation = Observation(status="ok", text=dirt)
    action = Action(tool="shell", arguments={"k": [{dirt: dirt}]}, thought=dirt)
    for text in (observation.text, action.thought, *action.arguments["k"][0].items().__iter__().__next__()):
        assert text.startswith("a")
        assert len(text) == 3
        assert "\x00" not in text
        text.encode()
