"""Arguments that fit a JSON Schema as far as it says: an example for tools that bring none."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from longstride.tools.schema import part, referred

DEEPEST = 6
MOST = 500
"""Values of one example; a small schema may hold itself many times. Those after it are null."""
MOST_ITEMS, MOST_CHARACTERS = 20, 200
"""Of one value; where a schema asks for more, the example is too short."""
OF_TYPE: Mapping[str, Any] = {"boolean": True, "null": None}


def sample(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The required arguments, each with an example or a default of the schema's own where it has one."""
    found = _Sampler(schema).value(schema, DEEPEST)
    return found if isinstance(found, dict) else {}


@dataclass
class _Sampler:
    root: Mapping[str, Any]
    left: int = MOST

    def value(self, schema: Any, deeper: int) -> Any:
        """One that fits."""
        self.left -= 1
        if not isinstance(schema, dict) or deeper == 0 or self.left < 0:
            return None
        for given in (schema.get("examples"), schema.get("enum"), [schema["const"]] if "const" in schema else None):
            if isinstance(given, list) and given:
                return given[0]
        if "default" in schema:
            return schema["default"]
        if isinstance(schema.get("$ref"), str):
            return self.value(referred(schema["$ref"], self.root), deeper - 1)
        for keyword in ("anyOf", "oneOf"):
            if choices := part(schema, keyword, list):
                return self.value(choices[0], deeper - 1)
        if parts := part(schema, "allOf", list):
            return self.value(_merged(_all(parts, self.root), schema), deeper - 1)
        return self._of_type(schema, deeper)

    def _of_type(self, schema: dict[str, Any], deeper: int) -> Any:
        kind = schema.get("type", "object" if "properties" in schema else "string")
        kind = next(iter(kind), "null") if isinstance(kind, list) else kind
        if kind == "object":
            known, names = part(schema, "properties", dict), part(schema, "required", list)
            return {str(name): self.value(known.get(name, {}), deeper - 1) for name in names}
        if kind == "array":
            count = _count(schema, "minItems", 0, MOST_ITEMS)
            return [self.value(schema.get("items", {}), deeper - 1) for _ in range(count)]
        if kind in ("integer", "number"):
            return _number(schema, kind)
        if kind == "string":
            return "…" * _count(schema, "minLength", 1, MOST_CHARACTERS)
        return OF_TYPE.get(str(kind))


def _all(parts: list[Any], root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Each part of an ``allOf``, or what it refers to."""
    for one in parts:
        found = referred(one["$ref"], root) if isinstance(one, dict) and isinstance(one.get("$ref"), str) else one
        if isinstance(found, dict):
            yield found


def _merged(parts: Iterator[Mapping[str, Any]], schema: Mapping[str, Any]) -> dict[str, Any]:
    """All of them as one: what one asks for, all do."""
    whole: dict[str, Any] = {}
    for one in (schema, *parts):
        more = {name: said for name, said in one.items() if said is not schema["allOf"]}
        properties = {**part(whole, "properties", dict), **part(one, "properties", dict)}
        required = [*part(whole, "required", list), *part(one, "required", list)]
        whole = {**whole, **more, "required": required, **({"properties": properties} if properties else {})}
    return whole


def _number(schema: Mapping[str, Any], kind: str) -> Any:
    """The least that is allowed; 1 where any is, or the most where that is less."""
    least, above, most, below = (
        _bound(schema, name) for name in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
    )
    if above is not None and (least is None or above >= least):
        high = min((bound for bound in (most, below) if bound is not None), default=above + 2)
        return int(above // 1) + 1 if kind == "integer" or above + 1 < high else (above + high) / 2
    if least is not None:
        return int(-(-least // 1)) if kind == "integer" else least
    lower = below - 1 if below is not None else 1
    return min(1, lower, most if most is not None else 1)


def _bound(schema: Mapping[str, Any], keyword: str) -> float | None:
    found = schema.get(keyword)
    number = isinstance(found, int | float) and not isinstance(found, bool) and abs(found) < float("inf")
    return found if number else None


def _count(schema: Mapping[str, Any], keyword: str, least: int, most: int) -> int:
    """``2.0`` is an integer in JSON Schema."""
    return int(min(max(_bound(schema, keyword) or 0, least), most))
