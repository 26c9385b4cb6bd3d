"""A tool's arguments as a person reads them: each with its type, default and bounds, out of its JSON Schema."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from longstride.tools.schema import part, referred

MOST_DEPTH = 3
"""Objects within objects that are told of; a server's schema may hold itself."""
MOST = 500
"""Arguments that are told of: what is in objects is told only as deep as there is room."""
MOST_CHOICES = 8
"""Types that are named where any of several will do."""
BOUNDS = (
    ("minLength", "maxLength", "{} characters"),
    ("minItems", "maxItems", "{} items"),
    ("minProperties", "maxProperties", "{} entries"),
    ("minimum", "maximum", "{}"),
)
"""(least, most, how both are told)."""
MORE_BOUNDS = (
    ("exclusiveMinimum", "more than "),
    ("exclusiveMaximum", "less than "),
    ("multipleOf", "a multiple of "),
    ("format", ""),
    ("pattern", "matches "),
)


@dataclass(frozen=True, slots=True)
class Argument:
    """One of them, or a part of one: ``tasks[].name``."""

    name: str
    type: str
    required: bool
    default: Any
    """``None`` also where there is none."""
    meaning: str
    bounds: str
    """Empty where anything of its type will do."""


def arguments(schema: Mapping[str, Any]) -> list[Argument]:
    """Those of an object's schema, each followed by its parts; no more than ``MOST``."""
    for depth in range(MOST_DEPTH, 0, -1):
        found = list(islice(_of_object(schema, schema, "", depth), MOST + 1))
        if len(found) <= MOST:
            break
    return found[:MOST]


def _of_object(schema: Mapping[str, Any], root: Mapping[str, Any], before: str, deeper: int) -> Iterator[Argument]:
    required = part(schema, "required", list)
    for name, described in part(schema, "properties", dict).items():
        own, found = _shape(described), _plain(described, root)
        meaning = " ".join(str(own.get("description") or found.get("description") or "").split())
        bounds = "; ".join(_bounds(found, root))
        yield Argument(before + name, _type(found, root), name in required, own.get("default"), meaning, bounds)
        if deeper > 1:
            items = _plain(found.get("items", {}), root)
            yield from _of_object(found, root, f"{before}{name}.", deeper - 1)
            yield from _of_object(items, root, f"{before}{name}[].", deeper - 1)


def _shape(schema: Any) -> Mapping[str, Any]:
    return schema if isinstance(schema, dict) else {}


def _plain(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a reference leads to; of something that may be null, what else it may be."""
    found = _shape(schema)
    for _ in range(MOST_DEPTH):
        choices = [choice for choice in part(found, "anyOf", list) if _shape(choice).get("type") != "null"]
        if "$ref" in found:
            found = _shape(referred(str(found["$ref"]), root))
        elif len(choices) == 1:
            found = _shape(choices[0])
    return found


def _type(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = 0) -> str:
    if "enum" in schema or "const" in schema:
        return " | ".join(map(str, part(schema, "enum", list) or [schema.get("const")]))
    kind = schema.get("type", "anything")
    if depth < MOST_DEPTH and (choices := part(schema, "anyOf", list) or part(schema, "oneOf", list)):
        told = [_type(_plain(choice, root), root, depth + 1) for choice in choices[:MOST_CHOICES]]
        return " | ".join(dict.fromkeys([*told, "…"] if len(choices) > MOST_CHOICES else told))
    if depth < MOST_DEPTH and kind == "array":
        return f"list of {_type(_plain(schema.get('items', {}), root), root, depth + 1)}"
    return " | ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _bounds(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[str]:
    """Its own, then those of what it holds."""
    yield from _own_bounds(schema)
    if "items" in schema:
        yield from (f"each {bound}" for bound in _own_bounds(_plain(schema["items"], root)))
    for pattern, value in part(schema, "patternProperties", dict).items():
        yield f"names match {pattern}"
        yield from (f"values {bound}" for bound in _own_bounds(_plain(value, root)))


def _own_bounds(schema: Mapping[str, Any]) -> Iterator[str]:
    for least, most, told in BOUNDS:
        if (found := _range(schema.get(least), schema.get(most))) is not None:
            yield told.format(found)
    yield from (f"{told}{_number(schema[name])}" for name, told in MORE_BOUNDS if name in schema)


def _range(least: Any, most: Any) -> str | None:
    if least in (None, 0) and most is None:
        return "at least 0" if least == 0 else None
    if most is None:
        return f"at least {_number(least)}"
    return f"at most {_number(most)}" if least is None else f"{_number(least)} to {_number(most)}"


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)
