"""Whether a tool can be shown to a policy: what OpenAI-style function calling asks of a name and a schema."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from longstride.contracts.v1.action import ToolSpec

TYPES = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))
SUBSCHEMAS = ("items", "additionalProperties", "not", "contains", "propertyNames")
SUBSCHEMA_LISTS = ("anyOf", "allOf", "oneOf", "prefixItems")
SUBSCHEMA_MAPS = ("properties", "$defs", "patternProperties")
MOST_BYTES = 16 * 1024
"""Every model call of a task carries its tools' schemas."""


def objection(spec: ToolSpec) -> str | None:
    """Why a policy cannot be shown this tool, as a sentence that names the place; ``None`` when it can."""
    parameters = spec.parameters
    if not spec.description.strip():
        return f"tool {spec.name!r} has no description: say in a sentence what it does"
    if parameters.get("type") != "object":
        return f"tool {spec.name!r}: the schema of its arguments must be of type object, not {parameters.get('type')!r}"
    size = len(json.dumps(parameters))
    if size > MOST_BYTES:
        return f"tool {spec.name!r}: its schema has {size} bytes; at most {MOST_BYTES} are shown to a policy"
    found = next(_faults(parameters, parameters, "arguments"), None)
    return f"tool {spec.name!r}: its schema is not valid: {found}" if found else None


def _faults(schema: Any, root: Mapping[str, Any], at: str) -> Iterator[str]:
    """Each fault of a schema and of those in it, with its place."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield f"{at} must be a schema, is {schema!r}"
        return
    yield from _own_faults(schema, root, at)
    for keyword in SUBSCHEMAS:
        if keyword in schema:
            yield from _faults(schema[keyword], root, f"{at}.{keyword}")
    for keyword in SUBSCHEMA_LISTS:
        for index, part in enumerate(_of_type(schema, keyword, list)):
            yield from _faults(part, root, f"{at}.{keyword}[{index}]")
    for keyword in SUBSCHEMA_MAPS:
        for name, part in _of_type(schema, keyword, dict).items():
            yield from _faults(part, root, f"{at}.{keyword}.{name}")


def _own_faults(schema: dict[str, Any], root: Mapping[str, Any], at: str) -> Iterator[str]:
    kinds = schema.get("type", [])
    if unknown := [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind not in TYPES]:
        yield f"{at}.type is {unknown[0]!r}; the types are {', '.join(sorted(TYPES))}"
    for keyword, kind in (*((k, list) for k in SUBSCHEMA_LISTS), *((k, dict) for k in SUBSCHEMA_MAPS)):
        if keyword in schema and not isinstance(schema[keyword], kind):
            yield f"{at}.{keyword} must be a {'list' if kind is list else 'object'}"
    known = _of_type(schema, "properties", dict)
    required = schema.get("required", [])
    if not isinstance(required, list):
        yield f"{at}.required must be a list of names"
    elif absent := [name for name in required if name not in known]:
        yield f"{at}.required names {absent[0]!r}, which is no property"
    if "enum" in schema and not (isinstance(schema["enum"], list) and schema["enum"]):
        yield f"{at}.enum must be a list of values"
    yield from _pattern_fault(schema, at)
    yield from _reference_fault(schema, root, at)


def _pattern_fault(schema: dict[str, Any], at: str) -> Iterator[str]:
    try:
        re.compile(schema.get("pattern", ""))
    except (re.error, TypeError) as error:
        yield f"{at}.pattern is no regular expression: {error}"


def _reference_fault(schema: dict[str, Any], root: Mapping[str, Any], at: str) -> Iterator[str]:
    reference = schema.get("$ref")
    if reference is None:
        return
    name = str(reference).removeprefix("#/$defs/")
    if name not in root.get("$defs", {}):
        yield f"{at}.$ref is {reference!r}, and there is nothing at that place"


def _of_type(schema: dict[str, Any], keyword: str, kind: type) -> Any:
    found = schema.get(keyword)
    return found if isinstance(found, kind) else kind()
