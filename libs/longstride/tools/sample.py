"""Arguments that fit a JSON Schema as far as it says: an example for tools that bring none."""

from collections.abc import Mapping
from typing import Any

from longstride.tools.schema import referred

DEEPEST = 6
OF_TYPE: Mapping[str, Any] = {"integer": 1, "number": 1, "boolean": True, "null": None, "string": "…"}


def sample(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The required arguments, each with an example or a default of the schema's own where it has one."""
    found = _value(schema, schema, DEEPEST)
    return found if isinstance(found, dict) else {}


def _value(schema: Any, root: Mapping[str, Any], deeper: int) -> Any:
    if not isinstance(schema, dict) or deeper == 0:
        return None
    for given in (schema.get("examples"), schema.get("enum"), [schema["const"]] if "const" in schema else None):
        if isinstance(given, list) and given:
            return given[0]
    if "default" in schema:
        return schema["default"]
    if isinstance(schema.get("$ref"), str):
        return _value(referred(schema["$ref"], root), root, deeper - 1)
    for choices in (schema.get("anyOf"), schema.get("oneOf")):
        if choices:
            return _value(choices[0], root, deeper - 1)
    return _of_type(schema, root, deeper)


def _of_type(schema: dict[str, Any], root: Mapping[str, Any], deeper: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        known = schema.get("properties", {})
        return {name: _value(known.get(name, {}), root, deeper - 1) for name in schema.get("required", ())}
    if kind == "array":
        return [_value(schema.get("items", {}), root, deeper - 1)] * schema.get("minItems", 0)
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    if kind == "string":
        return "…" * max(1, schema.get("minLength", 1))
    return OF_TYPE.get(kind)
