"""Whether a tool can be shown to a policy: what OpenAI-style function calling asks of a name and a schema."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import unquote

from longstride.agent.patterns import InvalidPattern, regex
from longstride.contracts.v1.action import ToolSpec

T = TypeVar("T")
INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
TYPES = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))
SUBSCHEMAS = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
SUBSCHEMA_LISTS = ("anyOf", "allOf", "oneOf", "prefixItems")
SUBSCHEMA_MAPS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
DESCRIBING = frozenset((*SUBSCHEMA_LISTS, "$ref", "patternProperties", "if"))
"""Keywords by which a property may be described elsewhere than in ``properties``."""
MOST_BYTES = 16 * 1024
"""Every model call of a task carries its tools' schemas."""


def objection(spec: ToolSpec) -> str | None:
    """Why a policy cannot be shown this tool, as a sentence that names the place; ``None`` when it can."""
    parameters = spec.parameters
    if not spec.description.strip():
        return f"tool {spec.name!r} has no description: say in a sentence what it does"
    if parameters.get("type") != "object":
        return f"tool {spec.name!r}: the schema of its arguments must be of type object, not {parameters.get('type')!r}"
    try:
        size = len(json.dumps(parameters))
        if size > MOST_BYTES:
            return f"tool {spec.name!r}: its schema has {size} bytes; at most {MOST_BYTES} are shown to a policy"
        found = next(_faults(parameters, parameters, "arguments"), None)
    except RecursionError:
        found = "it is nested too deeply"
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
        if isinstance(schema.get(keyword), list):  # a tuple's items, before 2020-12
            for index, inner in enumerate(schema[keyword]):
                yield from _faults(inner, root, f"{at}.{keyword}[{index}]")
        elif keyword in schema:
            yield from _faults(schema[keyword], root, f"{at}.{keyword}")
    for keyword in SUBSCHEMA_LISTS:
        for index, inner in enumerate(part(schema, keyword, list)):
            yield from _faults(inner, root, f"{at}.{keyword}[{index}]")
    for keyword in SUBSCHEMA_MAPS:
        for name, inner in part(schema, keyword, dict).items():
            yield from _faults(inner, root, f"{at}.{keyword}.{name}")


def _own_faults(schema: dict[str, Any], root: Mapping[str, Any], at: str) -> Iterator[str]:
    kinds = schema.get("type", [])
    if unknown := [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind not in TYPES]:
        yield f"{at}.type is {unknown[0]!r}; the types are {', '.join(sorted(TYPES))}"
    for keyword, kind in (*((k, list) for k in SUBSCHEMA_LISTS), *((k, dict) for k in SUBSCHEMA_MAPS)):
        if keyword in schema and not isinstance(schema[keyword], kind):
            yield f"{at}.{keyword} must be a {'list' if kind is list else 'object'}"
    yield from _required_faults(schema, at, alone=schema is root and not DESCRIBING & schema.keys())
    if "enum" in schema and not (isinstance(schema["enum"], list) and schema["enum"]):
        yield f"{at}.enum must be a list of values"
    yield from _pattern_fault(schema, at)
    yield from _reference_fault(schema, root, at)


def _required_faults(schema: dict[str, Any], at: str, *, alone: bool) -> Iterator[str]:
    """``alone``: what is not in ``properties`` is described nowhere."""
    known = part(schema, "properties", dict)
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        yield f"{at}.required must be a list of names"
    elif alone and (absent := [name for name in required if name not in known]):
        yield f"{at}.required names {absent[0]!r}, which is no property"


def _pattern_fault(schema: dict[str, Any], at: str) -> Iterator[str]:
    """Python's and RE2's are both taken: what is written for other languages is often one of them alone."""
    pattern = schema.get("pattern", "")
    try:
        re.compile(pattern)
    except (re.error, TypeError, OverflowError) as error:
        if not (isinstance(pattern, str) and _is_re2(pattern)):
            yield f"{at}.pattern is no regular expression: {error}"


def _is_re2(pattern: str) -> bool:
    try:
        regex(pattern)
    except InvalidPattern:
        return False
    return True


def _reference_fault(schema: dict[str, Any], root: Mapping[str, Any], at: str) -> Iterator[str]:
    reference = schema.get("$ref")
    if reference is None:
        return
    if not isinstance(reference, str) or referred(reference, root) is None:
        yield f"{at}.$ref is {reference!r}, and there is nothing at that place"


def referred(reference: str, root: Any) -> dict[str, Any] | bool | None:
    """The schema that a JSON pointer (RFC 6901) into this very schema finds; ``None``: there is none."""
    start, *steps = unquote(reference).split("/")
    for step in steps:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(root, list) and INDEX.fullmatch(name) and int(name) < len(root):
            root = root[int(name)]
        elif isinstance(root, dict) and name in root:
            root = root[name]
        else:
            return None
    return root if start == "#" and isinstance(root, dict | bool) else None


def part(schema: Mapping[str, Any], keyword: str, kind: type[T]) -> T:
    """What a keyword says; an empty one where it says nothing, or says it wrongly."""
    found = schema.get(keyword)
    return found if isinstance(found, kind) else kind()
