"""``--allow-host`` and what bounds it, as the way out of a task."""

import re
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Any

from longstride.client.errors import UsageProblem
from longstride.contracts.v1.egress import EgressRule, host_name
from longstride.sandbox.egress.addresses import closed

MOST_HOSTS, MOST_PORTS, LAST_PORT = 64, 16, 65_535
PORT = re.compile(r"[0-9]{1,5}")
OPTION = "--allow-host"


def way_out(hosts: Sequence[str], rate: int | None, volume: int | None) -> dict[str, Any] | None:
    """The fields of ``Egress``, or ``None`` without hosts.

    Raises:
        UsageProblem: a host cannot be one, or can never be reached; or there is a bound and nothing to bound.
    """
    bounds = {"--network-rate": ("kbytes_per_s", rate), "--network-volume": ("max_mbytes", volume)}
    given = {option: field for option, field in bounds.items() if field[1] is not None}
    if not hosts:
        if given:
            raise UsageProblem(f"{next(iter(given))} bounds nothing without {OPTION} HOST: there is no network")
        return None
    if len(hosts) > MOST_HOSTS:
        raise UsageProblem(f"{OPTION} is given {len(hosts)} times; a task may reach {MOST_HOSTS} hosts at the most")
    return {"rules": [rule(text) for text in hosts], **dict(given.values())}


def rule(text: str) -> EgressRule:
    """``HOST``, ``HOST:PORT`` or ``HOST:PORT,PORT``.

    Raises:
        UsageProblem: it is none of them, or no sandbox ever reaches it.
    """
    host, colon, listed = text.rpartition(":")
    if not colon:
        host, listed = text, "443"
    if "/" in text:
        raise _problem(text, "name a host, not a URL or a network, e.g. example.com:443")
    if ":" in host:
        raise _problem(text, "give a name or an IPv4 address, and the ports after one colon, e.g. example.com:80,443")
    return EgressRule(host=_host(text, host), ports=_ports(text, listed.split(",")))


def _host(text: str, host: str) -> str:
    base = host.removeprefix("*.")
    try:
        name = host_name(base)
    except ValueError as error:
        raise _problem(text, str(error).partition(" is ")[2] or str(error)) from error
    if base != host and "." not in name:
        raise _problem(text, "it is too wide: name two labels after the star, e.g. *.example.com")
    if why := _never_reached(name):
        raise _problem(text, f"no sandbox ever reaches {name}, which is {why}: name a public host")
    return host.lower()


def _never_reached(name: str) -> str | None:
    """Names are judged when they are resolved; these need no resolver."""
    if name == "localhost" or name.endswith(".localhost"):
        return "loopback"
    try:
        return closed(IPv4Address(name))
    except ValueError:
        return None


def _ports(text: str, listed: Sequence[str]) -> tuple[int, ...]:
    for port in listed:
        if not (PORT.fullmatch(port) and 0 < int(port) <= LAST_PORT):
            raise _problem(
                text, f"{port[:80]!r} is not a port: give numbers from 1 to {LAST_PORT}, e.g. example.com:80,443"
            )
    if len(listed) > MOST_PORTS:
        raise _problem(text, f"{len(listed)} ports are too many: {MOST_PORTS} at the most for each host")
    return tuple(map(int, listed))


def _problem(text: str, why: str) -> UsageProblem:
    return UsageProblem(f"{OPTION} {text[:80]!r}: {why}")
