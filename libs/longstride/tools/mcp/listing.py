"""What a server said that its tools are, pinned: services show it to policies, and a server that says something else is refused."""

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

MOST_TOOLS = 128
SEPARATOR = "__"
"""Between a server's name and its tool's, as policies call it. No builtin tool has it in its name."""
OTHERS = re.compile("[^a-z0-9_]")


class Pinned(BaseModel):
    """Part of a catalogue file: closed, with the names that the protocol uses."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, populate_by_name=True, serialize_by_alias=True
    )


class ServerTool(Pinned):
    """One tool as its server tells of it."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    description: Annotated[str, StringConstraints(max_length=4096)] = ""
    input_schema: Annotated[dict[str, Any], Field(alias="inputSchema")]
    output_schema: Annotated[dict[str, Any] | None, Field(alias="outputSchema")] = None
    annotations: dict[str, Any] | None = None
    """Hints about its effects. They are shown to people, and believed by nobody."""


class Listing(Pinned):
    """All that a server may be asked for, as it was when a person agreed to it."""

    at: datetime
    server: Annotated[str, StringConstraints(max_length=256)] = ""
    """Name and version, in its own words."""
    protocol: Annotated[str, StringConstraints(max_length=32)] = ""
    """The revision that was spoken."""
    tools: Annotated[tuple[ServerTool, ...], Field(min_length=1, max_length=MOST_TOOLS)]
    sha256: str
    """Of the tools, as ``digest`` makes it."""

    @model_validator(mode="after")
    def _untouched(self) -> Self:
        if self.sha256 != digest(self.tools):
            raise ValueError(
                "the pinned tools were changed by hand: pin the server again with `longstride mcp add NAME`"
            )
        return self


def digest(tools: Sequence[ServerTool]) -> str:
    """Of their canonical JSON, in the order of their names; hexadecimal."""
    shown = [tool.model_dump(mode="json", exclude_none=True) for tool in sorted(tools, key=lambda tool: tool.name)]
    return sha256(canonical(shown).encode()).hexdigest()


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal for equal values alone."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def called(server: str, tool: str) -> str:
    """The name by which policies call a server's tool: ``Brave-Search``, ``web.search`` → ``brave_search__web_search``."""
    return SEPARATOR.join(OTHERS.sub("_", part.lower()) for part in (server, tool))


def changes(pinned: Sequence[ServerTool], seen: Sequence[ServerTool], shown: int = 0) -> Iterator[str]:
    """What is not as it was pinned, in words. A tool that is new is no change: it cannot be called.

    Args:
        pinned: as they were.
        seen: as they are.
        shown: characters of what was and what is, for a person who must judge; 0: none, for an agent whom it may mean to deceive.
    """
    now = {tool.name: tool for tool in seen}
    for tool in pinned:
        if tool.name not in now:
            yield f"the tool {tool.name!r} is gone"
            continue
        for field in ("description", "input_schema", "output_schema", "annotations"):
            was, is_now = (canonical(getattr(said, field)) for said in (tool, now[tool.name]))
            if was != is_now:
                told = f": was {was[:shown]}, is {is_now[:shown]}" if shown else ""
                yield f"the {field.replace('_', ' ')} of {tool.name!r} is another{told}"
