"""What anybody may publish has bounds: no number of a command is without end, and no list that costs work for each item."""

from collections.abc import Iterator
from typing import Any

import pytest

from longstride.contracts.envelope import MessageError, decode, seal
from longstride.contracts.v1 import MESSAGES, commands
from longstride.contracts.v1.commands import SubmitTask

COMMANDS = [name for name, model in MESSAGES.items() if model.__module__ == commands.__name__]
FREE = {"number", "tolerance"}
"""Of an answer's check: compared, and no more."""


def numbers(schema: Any, name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, list):
        for part in schema:
            yield from numbers(part, name)
    elif isinstance(schema, dict):
        if schema.get("type") in ("integer", "number"):
            yield name, schema
        for key, part in schema.items():
            named = key if key not in ("anyOf", "items", "prefixItems", "properties", "$defs", "oneOf") else name
            yield from numbers(part, named)


@pytest.mark.parametrize("command", ["submit_task", "update_policy", "record_feedback", "sweep"])
def test_every_number_of_a_command_has_an_end(command: str) -> None:
    assert command in COMMANDS
    found = list(numbers(MESSAGES[command].model_json_schema()))
    assert found
    endless = [
        name for name, schema in found if name not in FREE and not {"maximum", "exclusiveMaximum"} & schema.keys()
    ]
    assert not endless


@pytest.mark.parametrize(
    ("part", "fields"),
    [
        ("sandbox", {"memory_mb": 99_999_999_999}),
        ("sandbox", {"disk_mb": 10**18}),
        ("sandbox", {"files": 10**9}),
        ("sandbox", {"processes": 10**9}),
        ("sandbox", {"output_bytes": 10**9}),
        ("sandbox", {"output_mb": 1e300}),
        ("limits", {"tokens": int("9" * 4000)}),
        ("limits", {"cpu_s": 1e300}),
        ("sampling", {"seed": 1 << 64}),
    ],
)
def test_an_absurd_limit_is_named_with_what_it_may_be(part: str, fields: dict[str, Any]) -> None:
    envelope = seal(SubmitTask(instruction="x"), task_id="task_1")
    wire = envelope.model_copy(update={"body": {"instruction": "x", part: fields}}).model_dump_json().encode()
    with pytest.raises(MessageError, match=rf"{part}\.{next(iter(fields))}: Input should be less than"):
        decode(wire)


def test_the_checks_of_a_task_are_counted() -> None:
    check = {"kind": "answer", "equals": "x"}
    body = {"instruction": "x", "checks": [check] * 101}
    wire = seal(SubmitTask(instruction="x")).model_copy(update={"body": body}).model_dump_json().encode()
    with pytest.raises(MessageError, match="at most 100"):
        decode(wire)
