"""Whether a JSONPath can find anything in a tool's arguments: a rule whose path finds nothing would let every call through."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from longstride.agent.patterns import path

Schema = Any
"""Of JSON Schema: an object, or ``True`` for anything."""
ALTERNATIVES = ("anyOf", "oneOf", "allOf")
ANYTHING: Schema = True


def astray(text: str, parameters: Mapping[str, Any]) -> str | None:
    """Why a path finds nothing in any arguments of this schema, and what there is instead; ``None`` when it may find something.

    Raises:
        InvalidPattern: it is no path.
    """
    at, places = "$", list(_meant([parameters], parameters))
    for segment in path(text).segments:
        if "Recursive" in type(segment).__name__:
            at, places = f"{at}..", _below(places, parameters)
        found = []
        for selector in segment.selectors:
            reached = [part for place in places for part in _children(place, selector)]
            if not reached:
                return f"there is no {selector} in {at.removesuffix('..')}; {_offer(places)}"
            found += reached
        at += f"[{', '.join(map(str, segment.selectors))}]"
        places = list(_meant(found, parameters))
    return None


def _meant(schemas: Iterable[Schema], root: Mapping[str, Any]) -> Iterator[Schema]:
    """What schemas may stand for, each once: references followed, alternatives one by one."""
    waiting, seen = list(schemas), set[int]()
    while waiting:
        schema = waiting.pop()
        if id(schema) in seen:
            continue
        seen.add(id(schema))
        others = list(_stands_for(schema, root)) if isinstance(schema, Mapping) else []
        waiting += others
        if not others or "properties" in schema:
            yield schema


def _stands_for(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[Schema]:
    if reference := str(schema.get("$ref", "")):
        yield _referred(reference, root)
    yield from chain.from_iterable(schema.get(word, ()) for word in ALTERNATIVES)


def _referred(reference: str, root: Mapping[str, Any]) -> Schema:
    return root.get("$defs", {}).get(reference.removeprefix("#/$defs/"), ANYTHING)


def _below(places: list[Schema], root: Mapping[str, Any]) -> list[Schema]:
    """The places and everything in them, each once: schemas may refer to themselves."""
    known: dict[int, Schema] = {}
    waiting = list(places)
    while waiting:
        place = waiting.pop()
        if id(place) not in known:
            known[id(place)] = place
            waiting += _meant(_parts(place), root)
    return list(known.values())


def _children(place: Schema, selector: Any) -> list[Schema]:
    kind = type(selector).__name__
    if kind == "NameSelector":
        return _named(place, selector.name)
    if kind in ("IndexSelector", "SliceSelector"):
        return _items(place)
    return list(_parts(place))


def _named(place: Schema, name: str) -> list[Schema]:
    if not _may_be(place, "object"):
        return []
    known = _properties(place)
    if name in known:
        return [known[name]]
    return _others(place)


def _items(place: Schema) -> list[Schema]:
    if not _may_be(place, "array"):
        return []
    return [*place.get("prefixItems", ()), place.get("items", ANYTHING)] if isinstance(place, Mapping) else [ANYTHING]


def _parts(place: Schema) -> Iterator[Schema]:
    if _may_be(place, "object"):
        yield from (*_properties(place).values(), *_others(place))
    yield from _items(place)


def _properties(place: Schema) -> Mapping[str, Schema]:
    return place.get("properties", {}) if isinstance(place, Mapping) else {}


def _others(place: Schema) -> list[Schema]:
    """Of properties that are not named."""
    if not isinstance(place, Mapping):
        return [ANYTHING]
    more = [*place.get("patternProperties", {}).values(), place.get("additionalProperties", ANYTHING)]
    return [part for part in more if part is not False]


def _may_be(place: Schema, kind: str) -> bool:
    if not isinstance(place, Mapping):
        return place is not False
    kinds = place.get("type", kind)
    return kind in (kinds if isinstance(kinds, list) else [kinds])


def _offer(places: list[Schema]) -> str:
    names = sorted({name for place in places for name in _properties(place)})
    if names:
        return f"there is {', '.join(names)}"
    return (
        "it holds a list: give [*] or a number"
        if any(_may_be(place, "array") for place in places)
        else "it is one value"
    )
