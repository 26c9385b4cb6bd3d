"""What anybody may publish has bounds: no number of a command is without end, and no list that costs work for each item."""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from longstride.agent.events import Submitted, load, store
from longstride.agent.soundness import objection
from longstride.contracts.envelope import decode, seal
from longstride.contracts.most import clipped, excesses
from longstride.contracts.v1 import MESSAGES, commands
from longstride.contracts.v1.commands import SubmitTask, Sweep

COMMANDS = [name for name, model in MESSAGES.items() if model.__module__ == commands.__name__]
STORED = Path(__file__).parent / "golden" / "stored"
BEYOND = {
    "checks",
    "checks.files.ref.size",
    "checks.weight",
    "egress.received_bytes",
    "egress.sent_bytes",
    "fork_of.0",
    "fork_of.1",
    "inputs.ref.size",
    "limits.cost_usd",
    "limits.cpu_s",
    "limits.format_errors",
    "limits.output_mb",
    "limits.received_mb",
    "limits.sent_mb",
    "limits.submissions",
    "limits.tokens",
    "limits.tool_s",
    "parent_task_id",
    "sampling.seed",
    "sandbox.disk_mb",
    "sandbox.files",
    "sandbox.memory_mb",
    "sandbox.output_bytes",
    "sandbox.output_mb",
    "sandbox.processes",
    "workspace.size",
}
"""Every field of a submission that takes less than it once did."""
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
    submit = SubmitTask.model_validate({"instruction": "x", part: fields})
    assert re.match(
        rf"{part}\.{next(iter(fields))}: .+ is more than is taken, [0-9]+ at the most$", objection(submit, ()) or ""
    )


def test_the_checks_of_a_task_are_counted() -> None:
    check = {"kind": "answer", "equals": "x"}
    taken, refused = (SubmitTask.model_validate({"instruction": "x", "checks": [check] * n}) for n in (100, 101))
    assert objection(taken, ()) is None
    assert objection(refused, ()) == "checks: a list of 101 is more than is taken, 100 at the most"


def test_an_error_of_a_bound_repeats_no_text() -> None:
    refused = SubmitTask(instruction="x", parent_task_id="hunter2" * 40)
    assert objection(refused, ()) == "parent_task_id: a text of 280 characters is more than is taken, 128 at the most"


def stored(name: str) -> dict[str, Any]:
    payload: dict[str, Any] = json.loads((STORED / f"{name}.json").read_text())
    return payload


def test_a_task_that_an_earlier_build_took_is_read_whatever_it_may_use() -> None:
    """Each value is beyond what is taken now, and was stored before there was that bound."""
    event = load("submitted", stored("submitted"))
    assert isinstance(event, Submitted)
    assert load(*store(event)) == event
    beyond = {re.sub(r"\.[0-9]+(?=\.)", "", fault.split(":")[0]) for fault in excesses(event.submit)}
    assert beyond == BEYOND


@pytest.mark.parametrize("name", ["execute_action", "generate"])
def test_a_command_that_an_earlier_build_dispatched_is_read(name: str) -> None:
    message = MESSAGES[name].model_validate(stored(name))
    wire = seal(message, task_id="task_1").encode()
    assert decode(wire).message() == message
    assert list(excesses(message))


def test_what_was_brought_within_the_bounds_may_be_submitted() -> None:
    submit = SubmitTask.model_validate(stored("submitted")["submit"])
    within = clipped(submit)
    assert objection(within, ()) is None
    assert within.limits.tokens == 10**12
    assert within.sandbox.output_mb == 1 << 20
    assert within.sampling.seed == -(1 << 63)
    assert clipped(within) is within


def test_a_sweep_that_is_to_remember_for_ever_does_so_for_thirty_years() -> None:
    wanted = clipped(Sweep(orphans_after_s=86_400, keep_spans_s=1e300))
    assert (wanted.orphans_after_s, timedelta(seconds=wanted.keep_spans_s).days) == (86_400, 11_574)
