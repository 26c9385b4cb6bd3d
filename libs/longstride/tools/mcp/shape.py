"""JSON Schemas of servers that nobody vouches for: checked for what they are, and checked against within bounds.

A schema can make a validator work for ever: patterns with exponential time, references that double at each turn. So patterns
are RE2's, nothing is fetched, and the work is counted.
"""

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
"""Keywords that one check may look at: a second's work or less."""
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
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        wrong = faults(kind.META_SCHEMA, schema)
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
    kind = _bounded(validator_for(schema, default=Draft202012Validator))
    token = _steps.set(0)
    try:
        found = kind(schema, registry=REGISTRY).iter_errors(value)
        return [f"{_place(error)}: {_told(error)}" for error in islice(found, MOST_FAULTS)]
    except Unresolvable as error:
        raise TooMuchWork(f"it refers to what is not there: {error}") from error
    finally:
        _steps.reset(token)


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
    }
    bounded = extend(kind, {name: _counted(own.get(name, check)) for name, check in kind.VALIDATORS.items()})
    # The library's own goes over to an unbounded validator wherever a part of the schema names its dialect.
    bounded.evolve = attrs.evolve
    return bounded


def _counted(check: Keyword) -> Keyword:
    def count(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        steps, depth = _steps.get() + 1, _depth.get()
        if steps > MOST_STEPS:
            raise TooMuchWork(f"checking it takes more than {MOST_STEPS} steps")
        if depth > MOST_DEPTH:
            raise TooMuchWork("it is nested too deeply, or without end")
        _steps.set(steps)
        _depth.set(depth + 1)
        try:
            yield from check(validator, wanted, instance, schema) or ()
        finally:
            _depth.set(depth)

    return count


def _found(pattern: str, text: str) -> bool:
    """What RE2 cannot say (look-around, back-references) is left to the server."""
    try:
        return regex(pattern).search(text) is not None
    except InvalidPattern:
        return True


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


def _unchecked(_validator: Any, _wanted: Any, _instance: Any, _schema: Any) -> None:
    """Finding out which properties were evaluated runs the patterns with exponential time; the server checks this one."""
