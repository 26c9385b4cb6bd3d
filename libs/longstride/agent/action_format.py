"""The one text form of an action: a JSON object, parsed strictly."""

import json
import math
import re
from typing import Any, NoReturn

from pydantic import JsonValue, ValidationError

from longstride.contracts.v1.action import Action

EXPECTED = '{"thought": "why", "plan": ["first", "then"], "tool": "python", "arguments": {"code": "print(1)"}}'
"""The form, as a model is shown it. ``thought`` and ``plan`` are optional."""
MAX_DEPTH = 32
"""Objects and lists inside each other; a deeper text is no tool call."""

_FENCE = re.compile(r"\s*```(?:json)?[ \t]*\r?\n(?P<body>.*?)\s*```\s*", re.DOTALL)
_KEYS = {"thought": "a string", "plan": "a list of strings", "tool": "a tool's name", "arguments": "an object"}


class FormatError(ValueError):
    """The text is not exactly one action; the message says what is wrong, where, and what was expected."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}. Answer with exactly one JSON object and nothing else, like {EXPECTED}")
        self.reason = reason
        """What is wrong, without the advice."""

    def __reduce__(self) -> tuple[type["FormatError"], tuple[str]]:
        return FormatError, (self.reason,)


def parse(text: str) -> Action:
    """The action that a text is.

    White space around the object is allowed, and so is one ```` ```json ```` fence around it; nothing else is.

    Raises:
        FormatError: no JSON object, more than one, prose beside it, a key twice, NaN or infinity, an unknown or missing
            key, a wrong type. Offsets in the message count characters of ``text`` from 0.
    """
    fields = _object(text)
    for key in fields.keys() - _KEYS.keys():
        raise FormatError(f"unknown key {_quote(key)}; the keys are {', '.join(_KEYS)}")
    for key in ("tool", "arguments"):
        if key not in fields:
            raise FormatError(f"the key {_quote(key)} is missing; it holds {_KEYS[key]}")
    _check_types(fields)
    _check_strings(fields, "the answer")
    try:
        return Action.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise FormatError(f"{_quote('.'.join(map(str, first['loc'])))}: {first['msg']}") from error


def render(action: Action) -> str:
    """The text of an action; ``parse`` reads it back. Keys stand in one order, so equal actions are equal texts."""
    fields: dict[str, JsonValue] = {}
    if action.thought is not None:
        fields["thought"] = action.thought
    if action.plan is not None:
        fields["plan"] = list(action.plan)
    return json.dumps({**fields, "tool": action.tool, "arguments": action.arguments}, ensure_ascii=False)


def _object(text: str) -> dict[str, Any]:
    start, end = _span(text)
    if start == end:
        raise FormatError("the answer is empty")
    if text[start] != "{":
        raise FormatError(f"expected a JSON object at offset {start}, found {_quote(text[start:end])}")
    try:
        value, stop = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise FormatError(
            f"not JSON at offset {error.pos}: {error.msg}, found {_quote(text[error.pos : end])}"
        ) from error
    except RecursionError as error:
        raise FormatError(f"objects and lists are nested more than {MAX_DEPTH} deep") from error
    rest = text[stop:end].lstrip()
    if rest:
        what = "a second JSON value" if rest[0] in "{[" else "text"
        raise FormatError(f"{what} after the object at offset {end - len(rest)}: {_quote(rest)}")
    assert isinstance(value, dict)
    return value


def _span(text: str) -> tuple[int, int]:
    """Where the object lies: inside the fence or the white space."""
    fence = _FENCE.fullmatch(text)
    start, end = fence.span("body") if fence else (0, len(text))
    body = text[start:end]
    start += len(body) - len(body.lstrip())
    return start, max(start, end - (len(body) - len(body.rstrip())))


def _check_types(fields: dict[str, Any]) -> None:
    plan = fields.get("plan", [])
    right = {
        "thought": isinstance(fields.get("thought", ""), str),
        "plan": isinstance(plan, list) and all(isinstance(item, str) for item in plan),
        "tool": isinstance(fields["tool"], str),
        "arguments": isinstance(fields["arguments"], dict),
    }
    for key, fits in right.items():
        if not fits:
            raise FormatError(f"{_quote(key)} must be {_KEYS[key]}, not {_quote(json.dumps(fields[key]))}")


def _check_strings(value: Any, where: str, depth: int = 0) -> None:
    """No text that a database or a UTF-8 stream cannot carry, and no bottomless nesting."""
    if depth > MAX_DEPTH:
        raise FormatError(f"objects and lists are nested more than {MAX_DEPTH} deep")
    if isinstance(value, str):
        _check_text(value, where)
    elif isinstance(value, list):
        for item in value:
            _check_strings(item, where, depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_text(key, f"a key of {where}")
            _check_strings(item, _quote(key), depth + 1)


def _check_text(text: str, where: str) -> None:
    for character in text:
        if character == "\0" or "\ud800" <= character <= "\udfff":
            raise FormatError(f"{where} holds the character U+{ord(character):04X}, which is not text")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, value in pairs:
        if key in fields:
            raise FormatError(f"the key {_quote(key)} stands twice in one object")
        fields[key] = value
    return fields


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise FormatError(f"the number {_quote(digits)} is too large")
    return value


def _integer(digits: str) -> int:
    if len(digits) > 4000:
        raise FormatError(f"a number of {len(digits)} digits is too large")
    return int(digits)


def _no_constant(name: str) -> NoReturn:
    raise FormatError(f"{name} is not a JSON value")


def _quote(text: str) -> str:
    """At most 40 characters of a text, in JSON's ASCII quoting, so that it shows what cannot be seen."""
    return json.dumps(text if len(text) <= 40 else text[:39] + "…")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_distinct, parse_constant=_no_constant, parse_float=_finite, parse_int=_integer
)
