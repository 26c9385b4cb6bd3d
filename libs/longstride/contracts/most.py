"""The most that a field takes of whoever submits it: said in the schema, asked at the door, and never of what is stored."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue

from longstride.contracts.model import Contract

M = TypeVar("M", bound=Contract)


@dataclass(frozen=True, slots=True)
class Most:
    """In ``Annotated``: what a stranger may submit. A number is judged by its value, text and lists by their length.

    Reading does not ask it: a row that an earlier build took stays readable for ever. ``excess`` does.
    """

    most: float
    least: float | None = None
    """``None``: no other than the field's own."""

    def fault(self, value: Any) -> str | None:
        """What is wrong with a value, after its path; ``None``: nothing."""
        size = _size(value)
        if size > self.most:
            return f"{_said(value)} is more than is taken, {_number(self.most)} at the most"
        if self.least is not None and size < self.least:
            return f"{_said(value)} is less than is taken, {_number(self.least)} at the least"
        return None

    def clip(self, value: Any) -> Any:
        """The nearest number that is taken, or the start of a text or a list."""
        if not isinstance(value, int | float):
            return value[: int(self.most)]
        raised = value if self.least is None else max(value, type(value)(self.least))
        return min(raised, type(value)(self.most))

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        schema[MAXIMUM.get(schema.get("type", ""), "maximum")] = self.most
        if self.least is not None:
            schema["minimum"] = self.least
        return schema


MAXIMUM = {"array": "maxItems", "string": "maxLength"}
"""JSON Schema's word for it, where it is not ``maximum``."""


def excess(message: Contract) -> str | None:
    """The first value of a message that is beyond its ``Most``, in a sentence; ``None``: there is none."""
    return next(excesses(message), None)


def excesses(message: Contract) -> Iterator[str]:
    """All of them."""
    return _faults(message, type(message), "")


def clipped(message: M) -> M:
    """The message with every value beyond its ``Most`` brought within it."""
    clipped_message: M = _clipped(message, type(message))
    return clipped_message


def _faults(value: Any, kind: Any, path: str) -> Iterator[str]:
    yield from (f"{path}: {fault}" for mark in _marks(kind) if value is not None and (fault := mark.fault(value)))
    for name, part, part_kind in _parts(value, kind):
        yield from _faults(part, part_kind, f"{path}.{name}" if path else name)


def _clipped(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    for mark in _marks(kind):
        value = mark.clip(value) if mark.fault(value) else value
    parts = {name: (part, _clipped(part, part_kind)) for name, part, part_kind in _parts(value, kind)}
    changes = {name: new for name, (old, new) in parts.items() if new is not old}
    if not changes:
        return value
    if isinstance(value, Contract):
        return value.model_copy(update=changes)
    return tuple(new for _, new in parts.values())


def _parts(value: Any, kind: Any) -> Iterator[tuple[str, Any, Any]]:
    """(name, value, annotation) of what a message or a tuple consists of."""
    if isinstance(value, Contract):
        for name, field in type(value).model_fields.items():
            yield name, getattr(value, name), Annotated[field.annotation, *field.metadata, None]
    elif isinstance(value, tuple):
        kinds = _item_kinds(kind, len(value))
        yield from ((str(i), item, item_kind) for i, (item, item_kind) in enumerate(zip(value, kinds, strict=True)))


def _marks(kind: Any) -> Iterator[Most]:
    if get_origin(kind) is Annotated:
        base, *metadata = get_args(kind)
        yield from (mark for mark in metadata if isinstance(mark, Most))
        yield from _marks(base)
    elif get_origin(kind) in (Union, UnionType):
        for choice in get_args(kind):
            yield from _marks(choice)


def _item_kinds(kind: Any, count: int) -> list[Any]:
    """What the annotation says of each item of a tuple."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _item_kinds(arguments[0], count)
    if origin in (Union, UnionType):
        return _item_kinds(next((choice for choice in arguments if choice is not type(None)), None), count)
    if origin is not tuple:
        return [None] * count
    return [arguments[0]] * count if arguments[1:] == (...,) else list(arguments)


def _size(value: Any) -> float:
    return value if isinstance(value, int | float) else len(value)


def _said(value: Any) -> str:
    if isinstance(value, int | float):
        text = _number(value)
        return text if len(text) <= 40 else f"a number of {len(text)} digits"
    return f"a text of {len(value)} characters" if isinstance(value, str) else f"a list of {len(value)}"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"
