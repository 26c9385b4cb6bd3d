"""Which addresses may be reached: public ones, and never this host's own."""

import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Network = IPv4Network | IPv6Network

CLOSED_4 = {
    "0.0.0.0/8": "unspecified",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared (carrier-grade NAT)",
    "127.0.0.0/8": "loopback",
    "168.63.129.16/32": "a cloud's metadata service",
    "169.254.0.0/16": "link-local, where clouds have their metadata service",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "reserved",
    "192.0.2.0/24": "reserved for documentation",
    "192.88.99.0/24": "reserved",
    "192.168.0.0/16": "private",
    "198.18.0.0/15": "reserved for benchmarks",
    "198.51.100.0/24": "reserved for documentation",
    "203.0.113.0/24": "reserved for documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
}
"""RFC 6890 and the IANA registry of special-purpose addresses; 168.63.129.16 is public in form, and Azure's own."""
PUBLIC_6 = IPv6Network("2000::/3")
"""What IANA has given out as global unicast. Outside lie loopback, link-local, private (fc00::/7, with fd00:ec2::254),
multicast, and the IPv4 addresses in IPv6 clothing: mapped, compatible, translated (64:ff9b::/96)."""
CLOSED_6 = {
    "2001::/23": "reserved; Teredo carries IPv4 addresses",
    "2001:db8::/32": "reserved for documentation",
    "2002::/16": "6to4, which carries IPv4 addresses",
    "3fff::/20": "reserved for documentation",
}
RULES: tuple[tuple[Network, str], ...] = (
    *((IPv4Network(network), word) for network, word in CLOSED_4.items()),
    *((IPv6Network(network), word) for network, word in CLOSED_6.items()),
)
INSIDE = (
    (IPv6Network("::1/128"), "loopback"),
    (IPv6Network("::/128"), "unspecified"),
    (IPv6Network("::ffff:0:0/96"), "an IPv4 address in IPv6 form"),
    (IPv6Network("64:ff9b::/96"), "an IPv4 address in IPv6 form"),
    (IPv6Network("fc00::/7"), "private"),
    (IPv6Network("fe80::/10"), "link-local"),
    (IPv6Network("ff00::/8"), "multicast"),
)
"""Words for what lies outside ``PUBLIC_6``."""


class Addresses:
    """Judges addresses."""

    def __init__(self, opened: Sequence[Network] = ()) -> None:
        """
        Args:
            opened: ranges that may be reached although they are closed to everybody else. For tests, which have no other
                servers than their own: no setting and no message leads here.
        """
        self._opened = tuple(opened)

    def refusal(self, text: str) -> str | None:
        """Why this address is not to be reached; ``None`` when it may be."""
        address = ip_address(text)
        if any(address in network for network in self._opened):
            return None
        word = closed(address)
        if word is None and is_own(address):
            word = "this host's own"
        return f"{text} is {word}" if word else None


def closed(address: IPv4Address | IPv6Address) -> str | None:
    """What kind of address it is, when nobody may reach it."""
    for network, word in RULES:
        if address in network:
            return word
    if isinstance(address, IPv6Address) and address not in PUBLIC_6:
        return next((word for network, word in INSIDE if address in network), "not public")
    return None


def is_own(address: IPv4Address | IPv6Address) -> bool:
    """Whether this host itself has it: what listens on every interface would be reached past its firewall.

    The kernel answers a datagram socket's ``connect`` with the address it would send from; nothing is sent.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), 9))
        except OSError:
            return False
        return ip_address(probe.getsockname()[0]) == address
