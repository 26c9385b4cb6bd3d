"""How Python values become PostgreSQL's, where the two disagree: neither text nor jsonb can hold U+0000."""

import json
from typing import Any

from psycopg.abc import AdaptContext, Buffer
from psycopg.types.json import set_json_dumps
from psycopg.types.string import StrDumper

from longstride.contracts.model import storable


class _TextDumper(StrDumper):
    """Text made storable: what tools print must never make a transaction fail for ever."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj if obj.isascii() and "\x00" not in obj else storable(obj))


def storable_json(wire: str) -> str:
    """Encoded JSON for a jsonb column."""
    return _dumps(json.loads(wire)).decode() if "\\u0000" in wire else wire


def _dumps(value: Any) -> bytes:
    try:
        wire = _encode(value)
    except UnicodeEncodeError:
        return _encode(storable(value))
    return _encode(storable(value)) if b"\\u0000" in wire else wire


def _encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def adapt(context: AdaptContext) -> None:
    """Teach a psycopg connection the rule."""
    context.adapters.register_dumper(str, _TextDumper)
    set_json_dumps(_dumps, context)
