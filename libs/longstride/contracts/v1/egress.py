"""The way out of a sandbox that a task is given, and what went through it."""

import re
from datetime import datetime
from ipaddress import IPv4Address
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator

from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.model import Contract, Text
from longstride.contracts.most import Most

Port = Annotated[int, Field(ge=1, le=65_535)]

LABEL = r"(?!-)[a-z0-9_-]{1,63}(?<!-)"
NAME = re.compile(rf"{LABEL}(\.{LABEL})*")
LISTED = 24
"""Connections that a message lists; all of them together must leave room for the rest of it."""


def host_name(text: str) -> str:
    """A host as rules and requests name it: lower case, without the dot of the root.

    Raises:
        ValueError: it is neither a name in ASCII nor an IPv4 address in its usual form. ``127.1`` and ``0x7f.0.0.1`` are
            neither, whatever a resolver makes of them.
    """
    name = text.lower().removesuffix(".")
    if len(name) > 253 or not NAME.fullmatch(name):
        raise ValueError(f"{text[:80]!r} is not a host: give a name in ASCII (xn--… for others) or an IPv4 address")
    last = name.rpartition(".")[2]
    if re.fullmatch(r"\d+|0x[0-9a-f]*", last):
        try:
            IPv4Address(name)
        except ValueError:
            raise ValueError(f"{text[:80]!r} is not an IPv4 address in its usual form, e.g. 93.184.215.14") from None
    return name


class EgressRule(Contract):
    """One place that sandboxed code may reach."""

    host: Annotated[str, StringConstraints(max_length=255)]
    """A name, an IPv4 address, or ``*.example.com``: every name below that one, itself left out."""
    ports: Annotated[tuple[Port, ...], Field(min_length=1, max_length=16)] = (443,)

    @field_validator("host")
    @classmethod
    def _is_host(cls, host: str) -> str:
        base = host.removeprefix("*.")
        name = host_name(base)
        if base != host and "." not in name:
            raise ValueError(f"{host!r} is too wide: name two labels after the star, e.g. *.example.com")
        return name if base == host else f"*.{name}"

    def __str__(self) -> str:
        return f"{self.host}:{','.join(map(str, self.ports))}"


class Egress(Contract):
    """What one tool call may reach, and how much it may move. Private, loopback, link-local and metadata addresses are refused
    whatever the rules say."""

    rules: Annotated[tuple[EgressRule, ...], Field(min_length=1, max_length=64)]
    kbytes_per_s: Annotated[int, Field(ge=1, le=10_000_000)] = 2048
    """KiB a second, each way, all connections of a call together."""
    max_mbytes: Annotated[int, Field(ge=1, le=1_000_000)] = 64
    """MiB that a call may move, each way."""
    sent_bytes: Annotated[int, Field(ge=0), Most(1 << 60)] | None = None
    """Bytes that a call may send, where that is less; the planner sets it to what is left of the task's budget."""
    received_bytes: Annotated[int, Field(ge=0), Most(1 << 60)] | None = None
    """Bytes that a call may receive, likewise."""


ConnectionVerdict = Literal["allowed", "refused", "failed"]
"""``failed``: it was allowed, and no connection came of it."""


class Connection(Contract):
    """One connection that sandboxed code asked for."""

    host: Annotated[Text, StringConstraints(max_length=255)] = ""
    """As it was asked for; empty where the request named none."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 0
    address: Annotated[str, StringConstraints(max_length=64)] | None = None
    """The one that was judged and connected to; ``None`` when it did not come to that."""
    sent: Annotated[int, Field(ge=0)] = 0
    """Bytes from the sandbox."""
    received: Annotated[int, Field(ge=0)] = 0
    """Bytes to the sandbox."""
    started_at: datetime
    ended_at: datetime
    verdict: ConnectionVerdict
    why: Annotated[Text, StringConstraints(max_length=300)]
    """The rule that allowed it, and what cut it short; or why it was refused or failed."""


class Traffic(Contract):
    """Everything that one action moved over the network."""

    connections: tuple[Connection, ...] = ()
    """The first 24, in the order of their start."""
    total: Annotated[int, Field(ge=0)] = 0
    """Connections, the unlisted ones included."""
    refused: Annotated[int, Field(ge=0)] = 0
    """Of them."""
    sent: Annotated[int, Field(ge=0)] = 0
    received: Annotated[int, Field(ge=0)] = 0
    """Bytes of all of them."""
    log: ArtifactRef | None = None
    """Every connection as JSON Lines, when they are more than those listed."""
