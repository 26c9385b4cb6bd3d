"""Schemas that a server made up, and arguments against them."""

import json

import jsonschema
import pytest

from longstride.contracts.v1.action import ToolSpec
from longstride.tools.mcp.shape import TooMuchWork, _bounded, _steps, faults, schema_objection
from longstride.tools.schema import objection

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DOUBLING = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)} | {"d40": {}}
DOUBLING_7 = json.loads(json.dumps(DOUBLING).replace("$defs", "definitions"))
ENDLESS = {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "objekt"}, "type: 'objekt' is not valid"),
        ({"type": "object", "properties": {"a": {"minLength": "3"}}}, "properties.a.minLength: '3' is not of type"),
        ({"type": "object", "properties": []}, "properties: [] is not of type 'object'"),
        ({"type": "object", "$defs": DOUBLING, "$ref": "#/$defs/d0"}, "more than 100000 steps"),
        (
            {"type": "object", "properties": {"a": {"$schema": DRAFT_7, "type": "objekt"}}},
            "properties.a.type: 'objekt'",
        ),
        ({"$schema": DRAFT_7, "type": "object", "definitions": DOUBLING_7, "$ref": "#/definitions/d0"}, "100000 steps"),
        ({"type": "object", "$ref": "#"}, "nested too deeply, or without end"),
    ],
)
def test_a_schema_that_checks_nothing_is_refused(schema: dict, why: str) -> None:
    assert why in str(schema_objection(schema))


OPEN = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
CLOSED = {**OPEN, "additionalProperties": False}
BY_NAME = {
    "type": "object",
    "patternProperties": {"^x-": {"type": "integer"}},
    "additionalProperties": {"type": "null"},
}
DEEP = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object", "required": ["b"]}}}}
TUPLE = {"$schema": DRAFT_7, "type": "object", "properties": {"a": {"items": [{"type": "string"}]}}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (OPEN, {}),
        (OPEN, {"a": "aaa", "b": 1}),
        (OPEN, {"a": "ab"}),
        (OPEN, {"a": 1}),
        (CLOSED, {"a": "a", "b": 1}),
        (BY_NAME, {"x-a": 1, "b": None}),
        (BY_NAME, {"x-a": "1"}),
        (BY_NAME, {"b": 1}),
        (DEEP, {"a": [{"b": 1}, {}]}),
        (DEEP, {"a": [{"b": 1}]}),
        (TUPLE, {"a": ["x", 1]}),
        (TUPLE, {"a": [1]}),
    ],
)
def test_the_verdict_is_the_librarys_own(schema: dict, value: dict) -> None:
    assert (faults(schema, value) == []) is jsonschema.validators.validator_for(schema)(schema).is_valid(value)


def test_a_fault_names_its_place() -> None:
    assert faults(DEEP, {"a": [{"b": 1}, {}]}) == ["a.1: 'b' is a required property"]
    assert faults(CLOSED, {"b": 1}) == ["arguments: unknown: 'b'; known are a"]


@pytest.mark.parametrize(
    "schema",
    [
        OPEN,
        {"$schema": DRAFT_7, **OPEN},
        {"type": "object", "properties": {"a": {"$schema": DRAFT_7, "pattern": "^(a+)+$"}}},
    ],
)
def test_a_pattern_of_exponential_time_is_answered_at_once(schema: dict) -> None:
    assert faults(schema, {"a": "a" * 50_000 + "!"})[0].startswith("a: 'aaa")


def test_a_pattern_that_only_other_engines_know_is_left_to_the_server() -> None:
    looking = {"type": "object", "properties": {"a": {"pattern": "^(?!x).*$"}}}
    assert schema_objection(looking) is None
    assert faults(looking, {"a": "x"}) == []


def test_a_schema_without_end_is_given_up() -> None:
    with pytest.raises(TooMuchWork):
        faults(ENDLESS, {"a": 1})


@pytest.mark.parametrize(
    ("inner", "outer"), [("items", "array"), ("additionalProperties", "object"), ("not", "object"), ("anyOf", "object")]
)
def test_a_deep_schema_is_given_up_before_python_gives_up(inner: str, outer: str) -> None:
    deep: dict = {"type": "string"}
    for _ in range(150):
        deep = {"type": outer, inner: [deep] if inner == "anyOf" else deep}
    assert "nested too deeply" in str(schema_objection(deep))


def test_a_deep_value_is_given_up_before_python_gives_up() -> None:
    tree: dict = {"type": "object", "properties": {"a": {"$ref": "#"}}}
    value: dict = {}
    for _ in range(150):
        value = {"a": value}
    with pytest.raises(TooMuchWork, match="nested too deeply"):
        faults(tree, value)


def test_nothing_is_fetched() -> None:
    with pytest.raises(TooMuchWork, match="refers to what is not there"):
        faults({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema"}}}, {"a": 1})


REAL = [
    # required by one of two groups, as zod and pydantic write unions
    {"type": "object", "properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    # definitions of draft 7, and references into properties
    {"type": "object", "properties": {"a": {"$ref": "#/definitions/A"}}, "definitions": {"A": {"type": "string"}}},
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"$ref": "#/properties/a"}}},
    # letters of any language, as JavaScript writes them
    {"type": "object", "properties": {"a": {"type": "string", "pattern": "^\\p{L}+$"}}},
    TUPLE,
    {"type": "object", "required": ["a"], "allOf": [{"properties": {"a": {"type": "string"}}}]},
]


@pytest.mark.parametrize("schema", REAL)
def test_schemas_as_real_servers_have_them_can_be_shown(schema: dict) -> None:
    assert schema_objection(schema) is None
    assert objection(ToolSpec(name="fly", description="Fly.", parameters=schema)) is None


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    deep: dict = {"type": "string"}
    for _ in range(5000):
        deep = {"not": deep}
    spec = ToolSpec.model_construct(
        name="fly", description="Fly.", parameters={"type": "object", "properties": {"a": deep}}
    )
    assert "nested too deeply" in str(objection(spec))


UNIQUE = {"type": "object", "properties": {"a": {"uniqueItems": True}}}


@pytest.mark.parametrize(
    "items",
    [
        [1, 1.0],
        [1, True],
        [0, False],
        [{"x": 1, "y": [2]}, {"y": [2.0], "x": 1}],
        [{"x": 1}, {"x": True}],
        ["1", 1, None, "null", [], {}],
        [[1, 2], [2, 1]],
        [-0.0, 0],
        "aa",
    ],
)
@pytest.mark.parametrize("wanted", [True, False])
def test_what_is_unique_is_the_librarys_own(items: object, wanted: bool) -> None:
    schema = {"properties": {"a": {"uniqueItems": wanted}}}
    verdict = jsonschema.Draft202012Validator(schema).is_valid({"a": items})
    assert (faults(schema, {"a": items}) == []) is verdict


def steps(schema: dict, value: dict) -> int:
    """How many a check takes."""
    token = _steps.set(0)
    try:
        list(_bounded(jsonschema.Draft202012Validator)(schema).iter_errors(value))
        return _steps.get()
    finally:
        _steps.reset(token)


def test_many_objects_are_unique_by_one_look_at_each() -> None:
    assert steps(UNIQUE, {"a": [{"n": n} for n in range(4000)]}) < 3 * 4000
    assert faults(UNIQUE, {"a": [{"n": n} for n in range(4000)] + [{"n": 7}]}) == ['a: it holds {"n":7} twice']


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"allOf": [{"uniqueItems": True}] * 100}, [{"n": n} for n in range(4000)]),
        ({"items": {"enum": [{"n": n} for n in range(1000)]}}, [{"n": 999}] * 2000),
        ({"items": {"const": [0] * 4000}}, [[0] * 4000] * 300),
        ({"items": {"required": ["a"] * 2000}}, [{"a": 1}] * 2000),
        ({"allOf": [{"items": {}}] * 1000}, [0] * 10_000),
        ({"anyOf": [{"type": "string"}] * 900}, ["x" * 1000] * 4000),
        ({"allOf": [{"pattern": "a$"}] * 900}, "a" * 1_000_000),
        ({"patternProperties": {f"x{n}": {} for n in range(900)}}, {"y" * 10_000 + str(n): 1 for n in range(100)}),
    ],
    ids=["unique", "enum", "const", "required", "items", "messages", "pattern", "names"],
)
def test_work_is_counted_by_what_it_goes_through(schema: dict, value: object) -> None:
    with pytest.raises(TooMuchWork, match="more than 100000 steps"):
        faults({"type": "object", "properties": {"a": schema}}, {"a": value})


def test_a_long_list_of_a_real_kind_is_checked() -> None:
    kinds = {
        "type": "array",
        "items": {"type": "string", "enum": [f"kind {n}" for n in range(100)]},
        "uniqueItems": False,
    }
    rows = {"type": "array", "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}}
    schema = {"properties": {"kinds": kinds, "rows": rows}}
    assert faults(schema, {"kinds": ["kind 7"] * 500, "rows": [{"n": n} for n in range(5000)]}) == []


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"multipleOf": 0.1}, float("inf")),
        ({"multipleOf": 0.5}, 10**400),
        ({"multipleOf": 0}, 1),
        ({"$ref": "http://[x/y"}, 1),
        ({"minLength": "3"}, "abc"),
    ],
    ids=["endless", "huge", "zero", "address", "keyword"],
)
def test_a_check_that_breaks_is_given_up(schema: dict, value: object) -> None:
    with pytest.raises(TooMuchWork):
        faults({"type": "object", "properties": {"a": schema}}, {"a": value})


@pytest.mark.parametrize("named", ["http://[x/y", 7, ["x"], {"a": 1}, None])
def test_a_dialect_that_is_none_is_an_objection_at_the_most(named: object) -> None:
    assert schema_objection({"$schema": named, "type": "object"})


@pytest.mark.parametrize("characters", [65_536, 4 << 20])
def test_a_pattern_costs_what_its_text_and_its_size_make(characters: int) -> None:
    """RE2 is linear in the text, and may visit each of ten thousand instructions for each character: minutes for a message."""
    schema = {"properties": {"a": {"pattern": "(?:x{0,1000}|x{0,999}|x{0,998}|x{0,997}|x{0,996})y"}}}
    with pytest.raises(TooMuchWork, match="more than 100000 steps"):
        faults(schema, {"a": "x" * characters})
    assert faults({"properties": {"a": {"pattern": "^x+$"}}}, {"a": "x" * characters}) == []


@pytest.mark.parametrize("pattern", ["a{99999999999999999999}", "\ud800(", "(" * 3000 + ")" * 3000])
def test_odd_patterns_are_an_objection_or_none_and_nothing_else(pattern: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    schema_objection(schema)
    told = objection(ToolSpec(name="a", description="It is.", parameters=schema))
    assert told is None or told.startswith("tool 'a': its schema is not valid")
