"""JSON Schemas of servers that nobody vouches for: checked for what they are, and checked against within bounds.

A schema can make a validator work for ever: patterns with exponential time, references that double at each turn. So patterns
are RE2's, nothing is fetched, and the work is counted.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from itertools import islice
from typing import Any

import attrs
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend, validator_for
from jsonschema_specifications import REGISTRY
from referencing.exceptions import Unresolvable

from longstride.agent.patterns import InvalidPattern, regex

MOST_STEPS = 100_000
"""Keywords that one check may look at, each counted for what it and its value hold: a few seconds' work or less."""
A_STEP, A_STEP_OF_TEXT = 4, 1 << 10
"""Items, and characters, that one step goes through."""
MOST_DEPTH = 120
"""Keywords within keywords. Python's own limit must not be met: the library's native parts do not survive it."""
MOST_FAULTS = 8
MOST_TOLD = 240

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]
_steps: ContextVar[int] = ContextVar("steps")
_depth: ContextVar[int] = ContextVar("depth", default=0)


class TooMuchWork(ValueError):
    """The check was given up: it would have taken too long, or is nested without end."""


def schema_objection(schema: Mapping[str, Any]) -> str | None:
    """Why values cannot be checked against this schema, or ``None``. Its dialect is the one that it names, else 2020-12."""
    try:
        wrong = faults(_dialect(schema).META_SCHEMA, schema)
        if not wrong:
            faults(schema, {})
    except TooMuchWork as error:
        return f"it cannot be used to check anything: {error}"
    return "; ".join(wrong) or None


def faults(schema: Mapping[str, Any], value: Any) -> list[str]:
    """What does not fit, each with its place; at the most ``MOST_FAULTS``.

    Raises:
        TooMuchWork: it cannot be said.
    """
    kind = _bounded(_dialect(schema))
    token = _steps.set(0)
    try:
        found = kind(schema, registry=REGISTRY).iter_errors(value)
        return [f"{_place(error)}: {_told(error)}" for error in islice(found, MOST_FAULTS)]
    except TooMuchWork:
        raise
    except Unresolvable as error:
        raise TooMuchWork(f"it refers to what is not there: {error}") from error
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # The library's own: numbers without end, addresses that cannot be split, keywords of another type.
        raise TooMuchWork(f"the check broke: {type(error).__name__}: {str(error)[:MOST_TOLD]}") from error
    finally:
        _steps.reset(token)


def _dialect(schema: Mapping[str, Any]) -> Any:
    named = schema.get("$schema", "")
    try:
        return validator_for(schema if isinstance(named, str) else {}, default=Draft202012Validator)
    except ValueError as error:
        raise TooMuchWork(f"$schema: {named[:MOST_TOLD]!r} is no address: {error}") from error


def _place(error: ValidationError) -> str:
    return ".".join(map(str, error.absolute_path)) or "arguments"


def _told(error: ValidationError) -> str:
    text: str = error.message
    return text if len(text) <= MOST_TOLD else f"{text[:MOST_TOLD]}…"


@lru_cache(8)
def _bounded(kind: Any) -> Any:
    """The dialect's validator, with its work counted and its patterns RE2's."""
    own: dict[str, Keyword] = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "unevaluatedProperties": _unchecked,
        "uniqueItems": _unique_items,
    }
    bounded = extend(kind, {name: _counted(name, own.get(name, check)) for name, check in kind.VALIDATORS.items()})
    # The library's own goes over to an unbounded validator wherever a part of the schema names its dialect.
    bounded.evolve = attrs.evolve
    return bounded


def _counted(name: str, check: Keyword) -> Keyword:
    size_of = _weight if name in ("enum", "const") else _extent

    def count(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        depth = _depth.get()
        _charge(1 + _extent(instance) + size_of(wanted))
        _require_depth(depth)
        _depth.set(depth + 1)
        try:
            for error in check(validator, wanted, instance, schema) or ():
                _charge(_extent(error.message))
                yield error
        finally:
            _depth.set(depth)

    return count


def _charge(steps: int) -> None:
    total = _steps.get() + steps
    if total > MOST_STEPS:
        raise TooMuchWork(f"checking it takes more than {MOST_STEPS} steps")
    _steps.set(total)


def _require_depth(depth: int) -> None:
    if depth > MOST_DEPTH:
        raise TooMuchWork("it is nested too deeply, or without end")


def _extent(value: Any) -> int:
    """Steps for going through a value once, what is within its items left out."""
    if isinstance(value, str):
        return len(value) // A_STEP_OF_TEXT
    return len(value) // A_STEP if isinstance(value, list | dict) else 0


def _weight(value: Any) -> int:
    """Steps for comparing all of a value with another."""
    return len(_canonical(value, 0)) // A_STEP_OF_TEXT + _extent(value)


def _canonical(value: Any, depth: int) -> str:
    """JSON that is the same for what JSON Schema holds to be equal: 1 and 1.0, but not ``true``."""
    _require_depth(depth)
    match value:
        case dict():
            fields = (f"{json.dumps(key)}:{_canonical(value[key], depth + 1)}" for key in sorted(value))
            return f"{{{','.join(fields)}}}"
        case list():
            return f"[{','.join(_canonical(item, depth + 1) for item in value)}]"
        case float() if value.is_integer():
            return json.dumps(int(value))
        case _:
            return json.dumps(value)


def _found(pattern: str, text: str) -> bool:
    """What RE2 cannot say (look-around, back-references) is left to the server.

    RE2's time is linear in the text, but each character may cost a visit of every instruction of the pattern.
    """
    try:
        compiled = regex(pattern)
    except InvalidPattern:
        return True
    _charge(_extent(text) + len(text) * compiled.programsize // A_STEP_OF_TEXT)
    return compiled.search(text) is not None


def _pattern(validator: Any, wanted: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not _found(wanted, instance):
        yield ValidationError(f"{instance!r} does not match {wanted!r}")


def _pattern_properties(validator: Any, wanted: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, part in wanted.items():
        for name in [name for name in instance if _found(pattern, name)]:
            yield from validator.descend(instance[name], part, path=name, schema_path=pattern)


def _additional_properties(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    others = [name for name in instance if name not in known and not any(_found(p, name) for p in patterns)]
    if wanted is False and others:
        yield ValidationError(f"unknown: {', '.join(map(repr, others))}; known are {', '.join(known) or 'none'}")
    elif validator.is_type(wanted, "object"):
        for name in others:
            yield from validator.descend(instance[name], wanted, path=name)


def _unique_items(validator: Any, wanted: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    """The library's own compares each item with each."""
    if not wanted or not validator.is_type(instance, "array"):
        return
    seen: set[str] = set()
    for item in instance:
        text = _canonical(item, 0)
        _charge(1 + len(text) // A_STEP_OF_TEXT)
        if text in seen:
            yield ValidationError(f"it holds {text[:MOST_TOLD]} twice")
            return
        seen.add(text)


def _unchecked(_validator: Any, _wanted: Any, _instance: Any, _schema: Any) -> None:
    """Finding out which properties were evaluated runs the patterns with exponential time; the server checks this one."""
