"""What people and programs are told of tools: all of it the tools' own."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from longstride.contracts.v1.action import ToolSpec
from longstride.contracts.v1.egress import Egress, EgressRule
from longstride.tools.argument import MOST, Argument, arguments
from longstride.tools.card import EFFECTS, LIMITS, card
from longstride.tools.mcp.catalogue import Catalogue, Server, write
from longstride.tools.mcp.listing import Listing, ServerTool, digest
from longstride.tools.mcp.register import registered
from longstride.tools.registry import builtin_tools
from longstride.tools.sample import sample
from longstride.tools.schema import objection, referred
from tests.support.command_line import longstride

TOOLS = builtin_tools()
NOTE = {
    "type": "object",
    "$defs": {"tag": {"type": "string", "minLength": 2, "description": "A word."}},
    "properties": {
        "text": {"type": "string", "maxLength": 2000, "description": "What to note."},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "minItems": 1},
        "kind": {"enum": ["plain", "loud"]},
        "times": {"type": "integer", "minimum": 3, "default": 5},
        "more": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    },
    "required": ["text", "tags", "kind"],
}
ADD = ServerTool(name="add", description="Add a note.\x1b[31m", input_schema=NOTE)
HOSTS = Egress(rules=(EgressRule(host="notes.example.com"),))


def catalogue(**fields: Any) -> Catalogue:
    listing = Listing(at=datetime(2026, 7, 28, tzinfo=UTC), tools=(ADD,), sha256=digest((ADD,)))
    return Catalogue(servers={"notes": Server(command="notes", pinned=listing, **fields)})


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """The command, with the file of MCP servers that a test gives; no stack runs."""
    monkeypatch.setenv("LONGSTRIDE_MCP_FILE", str(tmp_path / "mcp.json"))
    monkeypatch.setenv("LONGSTRIDE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "100")

    def run(*words: str, servers: Catalogue | None = None) -> tuple[int, str, str]:
        if servers:
            write(tmp_path / "mcp.json", servers)
        found = longstride(capsys, "tools", *words)
        assert not (tmp_path / "home").exists(), "nothing was started"
        return found

    return run


def test_every_tool_is_listed_with_its_effects(told) -> None:
    code, out, _ = told(servers=catalogue())
    lines = [line.split() for line in out.splitlines()[2:]]
    assert code == 0
    assert {line[0] for line in lines} == {*TOOLS.names, "notes__add"}
    shown = {line[0]: (" ".join(line[1:3]), line[3]) for line in lines}
    assert shown["shell"] == ("every task", "pure")
    assert shown["artifact_put"] == ("by name", "keyed")
    assert shown["notes__add"] == ("by name", "unsafe")


@pytest.mark.parametrize("name", TOOLS.names)
def test_all_about_a_tool_is_what_its_schema_says(told, name: str) -> None:
    code, out, _ = told(name)
    as_json = json.loads(told(name, "--json")[1])
    spec = TOOLS.specs([name])[0]
    assert code == 0
    assert as_json["parameters"] == spec.parameters
    outer = [argument for argument in as_json["arguments"] if not set(argument["name"]) & set(".[")]
    assert [argument["name"] for argument in outer] == list(spec.parameters.get("properties", {}))
    assert [a["name"] for a in outer if a["required"]] == spec.parameters.get("required", [])
    words = " ".join(out.split())
    for argument in as_json["arguments"]:
        assert f"{argument['name']} {argument['type']}, " in words
        assert argument["meaning"] in words
    assert spec.description in out


@pytest.mark.parametrize("name", TOOLS.names)
def test_every_example_is_a_call_that_is_taken(name: str) -> None:
    found = card(TOOLS, name)
    tool = TOOLS.get(name)
    assert tool is not None
    assert tool.example is not None
    assert found.example == {"tool": name, "arguments": tool.example}
    tool.parse(found.example["arguments"])


def test_effects_and_limits_are_as_the_registry_and_the_task_have_them() -> None:
    assert card(TOOLS, "read_file").limits["wall_s"] == 30
    assert card(TOOLS, "shell").limits == {
        **{"wall_s": 120, "cpu_s": 60, "memory_mb": 512, "processes": 64, "disk_mb": 256, "output_mb": 16}
    }
    assert set(LIMITS) < set(card(TOOLS, "shell").limits)
    assert card(TOOLS, "recall").limits == {}
    reaching = {name for name in TOOLS.names if "as unsafe" in card(TOOLS, name).after_an_interruption}
    assert {"shell", "python", "bash", "process_start"} <= reaching
    assert reaching.isdisjoint({"read_file", "fetch_url", "install_packages", "submit", "recall"})


@pytest.mark.parametrize("idempotency", EFFECTS)
def test_a_tool_of_a_server_is_told_of_as_it_was_pinned(told, idempotency: str) -> None:
    servers = catalogue(idempotency=idempotency, egress=HOSTS, secrets=("key",), timeout_s=7)
    code, out, _ = told("notes__add", servers=servers)
    found = json.loads(told("notes__add", "--json")[1])
    assert (code, "\x1b" in out) == (0, False)
    assert found["effects"] == idempotency
    assert found["after_an_interruption"] == EFFECTS[idempotency]
    assert (found["network"], found["secrets"]) == ("notes.example.com:443", ["key"])
    assert found["limits"]["wall_s"] == 7
    assert [a["name"] for a in found["arguments"]][:5] == ["text", "tags", "kind", "times", "more"]
    assert found["example"]["arguments"] == {"text": "…", "tags": ["……"], "kind": "plain"}
    assert card(registered(catalogue()), "notes__add").network == "none, whatever the task may reach"


@pytest.mark.parametrize(("wrong", "hint"), [("fetch", "did you mean fetch_url?"), ("zzzzzz", "tools` lists them")])
def test_a_tool_that_is_not_there_is_told_with_the_nearest(told, wrong: str, hint: str) -> None:
    code, out, err = told(wrong)
    assert (code, out) == (4, "")
    assert f"there is no tool {wrong!r}; " in err
    assert hint in err


def test_a_file_of_servers_that_cannot_be_used_is_told(told, tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text("{")
    code, out, err = told()
    assert (code, out) == (1, "")
    assert f"the MCP servers' file {tmp_path / 'mcp.json'}: " in err


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, ("string", "")),
        ({"type": "string", "minLength": 1, "maxLength": 1024}, ("string", "1 to 1,024 characters")),
        ({"type": "integer", "minimum": 1}, ("integer", "at least 1")),
        ({"type": "number", "minimum": 0, "maximum": 60}, ("number", "0 to 60")),
        ({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}]}, ("number", "more than 0")),
        ({"enum": ["GET", "HEAD"]}, ("GET | HEAD", "")),
        ({"const": 3}, ("3", "")),
        ({"type": ["string", "integer"]}, ("string | integer", "")),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, ("string | integer", "")),
        (
            {"type": "array", "items": {"type": "string", "maxLength": 9}, "maxItems": 2},
            ("list of string", "at most 2 items; each at most 9 characters"),
        ),
        ({"type": "array", "items": {"$ref": "#/properties/a"}}, ("list of list of list of array", "")),
        ({"type": "string", "format": "date", "pattern": "^2"}, ("string", "date; matches ^2")),
        ({}, ("anything", "")),
        (True, ("anything", "")),
    ],
)
def test_types_and_bounds_in_words(schema: Any, expected: tuple[str, str]) -> None:
    (found,) = arguments({"type": "object", "properties": {"a": schema}})
    assert (found.type, found.bounds) == expected


def test_parts_of_an_argument_are_arguments() -> None:
    part = {"type": "object", "properties": {"b": {"type": "string", "description": "B."}}, "required": ["b"]}
    schema = {"type": "object", "properties": {"one": part, "many": {"type": "array", "items": part}}}
    assert [a for a in arguments(schema) if a.name.endswith("b")] == [
        Argument("one.b", "string", True, None, "B.", ""),
        Argument("many[].b", "string", True, None, "B.", ""),
    ]


def test_a_schema_that_holds_itself_ends() -> None:
    names = [argument.name for argument in arguments(NOTE)]
    assert "more.more.more" in names
    assert "more.more.more.more" not in names


def wide(described: Any, count: int = 100) -> dict[str, Any]:
    """An object's schema with many properties of one kind, all required."""
    names = [f"p{n}" for n in range(count)]
    return {"type": "object", "properties": dict.fromkeys(names, described), "required": names}


CHOICES = {"anyOf": [{"$ref": "#/$defs/c"}] * 100}
TEXT = {"type": "string"}
HUGE = {
    "itself, a hundred times": wide({"$ref": "#"}),
    "lists of itself": wide({"type": "array", "items": {"$ref": "#"}, "minItems": 10}),
    "a choice of choices": {**wide({"$ref": "#/$defs/c"}), "$defs": {"c": CHOICES}},
    "a text of gigabytes": wide({"type": "string", "minLength": 10**10}),
    "a text of no whole length": wide({"type": "string", "minLength": 2.0}),
    "a list of billions": wide({"type": "array", "items": TEXT, "minItems": 10**10}),
    "lists of lists": wide({"type": "array", "items": {"$ref": "#/properties/p0"}, "minItems": 1000}),
    "all of itself": {**wide({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}), "allOf": [{"$ref": "#"}] * 50},
    "what is no schema": {**wide({"$ref": "#/x"}), "x": {"required": 5, "anyOf": 5, "type": [], "enum": 5}},
}


@pytest.mark.parametrize("schema", HUGE.values(), ids=HUGE)
def test_no_pinned_schema_holds_anybody_up(told, schema: dict[str, Any]) -> None:
    """One is a few kilobytes, and what it spans has no end. Every argument of the tool itself is told of."""
    pinned = ServerTool(name="add", description="Add a note.", input_schema=schema)
    listing = Listing(at=datetime(2026, 7, 28, tzinfo=UTC), tools=(pinned,), sha256=digest((pinned,)))
    servers = Catalogue(servers={"notes": Server(command="notes", pinned=listing)})
    assert told(servers=servers)[0] == 0
    assert told("notes__add")[0] == 0
    code, out, _ = told("notes__add", "--json")
    found = json.loads(out)
    assert code == 0
    assert set(schema["properties"]) <= {argument["name"] for argument in found["arguments"]}
    assert len(found["arguments"]) <= MOST
    assert list(found["example"]["arguments"]) == schema["required"]


def test_more_arguments_than_are_told_of_say_so(told) -> None:
    pinned = ServerTool(name="add", description="Add a note.", input_schema=wide({}, MOST + 1))
    listing = Listing(at=datetime(2026, 7, 28, tzinfo=UTC), tools=(pinned,), sha256=digest((pinned,)))
    _, out, _ = told("notes__add", servers=Catalogue(servers={"notes": Server(command="notes", pinned=listing)}))
    assert f"these are the first {MOST}" in " ".join(out.split())


@pytest.mark.parametrize(
    ("described", "kind"),
    [
        ({"type": "integer", "exclusiveMinimum": 3}, "integer"),
        ({"type": "integer", "exclusiveMinimum": 2.5, "maximum": 3}, "integer"),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5}, "number"),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}, "number"),
        ({"type": "integer", "minimum": 3, "exclusiveMinimum": 1}, "integer"),
        ({"type": "integer", "minimum": 1.5}, "integer"),
        ({"type": "integer", "maximum": -4}, "integer"),
        ({"type": "number", "exclusiveMaximum": 0}, "number"),
        ({"allOf": [{"type": "integer"}, {"minimum": 7}]}, "integer"),
        ({"allOf": [{"$ref": "#/$defs/x"}, {"minLength": 4}]}, "string"),
        ({"type": "object", "required": ["a"], "allOf": [{"properties": {"a": TEXT, "b": TEXT}, "required": ["b"]}]}, "object"),
        ({"$ref": "#/$defs/one/oneOf/1"}, "boolean"),
        ({"$ref": "#/$defs/a~1b%20c"}, "boolean"),
    ],
    ids=str,
)  # fmt: skip
def test_a_sample_keeps_to_its_bounds_and_is_of_the_type_that_is_told(described: dict[str, Any], kind: str) -> None:
    """``jsonschema`` is the judge."""
    defs = {"x": TEXT, "one": {"oneOf": [TEXT, {"type": "boolean"}]}, "a/b c": {"type": "boolean"}}
    schema = {"type": "object", "properties": {"p": described}, "required": ["p"], "$defs": defs}
    jsonschema.Draft202012Validator(schema).validate(sample(schema))
    if "allOf" not in described:
        assert [a.type for a in arguments(schema) if a.name == "p"] == [kind]


@pytest.mark.parametrize("reference", ["#/$defs/x/oneOf/2", "#/$defs/x/oneOf/01", "#/$defs/x/oneOf/" + "9" * 5000, "x"])
def test_a_reference_to_nothing_is_an_objection(reference: str) -> None:
    schema = {**wide({"$ref": reference}, 1), "$defs": {"x": {"oneOf": [TEXT, TEXT]}}}
    assert referred(reference, schema) is None
    assert "there is nothing at that place" in (objection(ToolSpec(name="t", description="t", parameters=schema)) or "")


@pytest.mark.parametrize("name", TOOLS.names)
def test_a_sample_fits_its_schema(name: str) -> None:
    parameters = TOOLS.specs([name])[0].parameters
    found = sample(parameters)
    assert set(found) == set(parameters.get("required", ()))
    if not any("pattern" in str(parameters["properties"][key]) for key in found):
        jsonschema.validate(found, parameters)
