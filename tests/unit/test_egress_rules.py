"""What a task may name, and which addresses nobody reaches."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from longstride.contracts.v1.egress import Egress, EgressRule
from longstride.sandbox.egress.addresses import Addresses, closed, is_own
from longstride.sandbox.egress.allowlist import rule_for, told
from longstride.sandbox.egress.flow import BURST_S, FlowExhausted, Hold, TokenBucket, flow


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("API.Example.com", "api.example.com"),
        ("example.com.", "example.com"),
        ("*.Example.com", "*.example.com"),
        ("93.184.215.14", "93.184.215.14"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("localhost", "localhost"),
    ],
)
def test_hosts_that_can_be_named(given: str, kept: str) -> None:
    assert EgressRule(host=given).host == kept


@pytest.mark.parametrize(
    "host",
    [
        *("", ".", "*", "*.com", "a.*.com", "*example.com", "exa mple.com", "bücher.example", "http://example.com"),
        *("example.com:443", "user@example.com", "[::1]", "::1", "127.1", "0x7f.0.0.1", "0x7f000001", "2130706433"),
        *("0177.0.0.1", "1.2.3.4.5", "-a.com", "a-.com", "a..b", "a" * 64 + ".com", "a.com\n", "a.com\x00", "%65.com"),
    ],
)
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(ValidationError):
        EgressRule(host=host)


@pytest.mark.parametrize("ports", [(), (0,), (65_536,), (-1,), tuple(range(1, 18))])
def test_ports_that_are_none(ports: tuple[int, ...]) -> None:
    with pytest.raises(ValidationError):
        EgressRule(host="example.com", ports=ports)


EGRESS = Egress(
    rules=(EgressRule(host="api.example.com", ports=(443, 8443)), EgressRule(host="*.example.org", ports=(80,)))
)


@pytest.mark.parametrize(
    ("host", "port", "allowed"),
    [
        ("api.example.com", 443, True),
        ("api.example.com", 8443, True),
        ("api.example.com", 80, False),
        ("example.com", 443, False),
        ("evil-api.example.com", 443, False),
        ("api.example.com.evil.net", 443, False),
        ("a.example.org", 80, True),
        ("a.b.example.org", 80, True),
        ("example.org", 80, False),
        ("badexample.org", 80, False),
        ("a.example.org", 443, False),
    ],
)
def test_a_rule_allows_what_it_names(host: str, port: int, allowed: bool) -> None:
    assert (rule_for(EGRESS, host, port) is not None) is allowed


def test_the_rules_in_words() -> None:
    assert told(EGRESS) == "api.example.com:443,8443, *.example.org:80"
    assert told(EGRESS, 1) == "api.example.com:443,8443 and 1 more"


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "172.16.0.1"),
        *("172.31.255.255", "192.168.0.1", "169.254.169.254", "169.254.170.2", "100.64.0.1", "100.100.100.200"),
        *("100.127.255.255", "192.0.0.192", "192.0.2.1", "198.18.0.1", "198.19.255.255", "198.51.100.7"),
        *("203.0.113.9", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "168.63.129.16"),
        *("::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:169.254.169.254", "fe80::1"),
        *("fe80::1%lo", "fc00::1", "fd00:ec2::254", "fd12:3456::1", "ff02::1", "64:ff9b::7f00:1", "64:ff9b:1::1"),
        *("2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "100::1", "5f00::1", "4000::1"),
    ],
)
def test_addresses_that_nobody_reaches(address: str) -> None:
    refusal = Addresses().refusal(address)
    assert refusal is not None
    assert refusal.startswith(f"{address} is ")


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "93.184.215.14", "172.32.0.1", "100.128.0.1", "192.0.1.1", "2606:4700:4700::1111"]
)
def test_public_addresses(address: str) -> None:
    assert Addresses().refusal(address) is None


@given(st.ip_addresses())
def test_whatever_the_standard_library_calls_private_is_closed(address) -> None:
    """An independent table: https://docs.python.org/3/library/ipaddress.html names the registries that it follows."""
    special = address.is_private or address.is_loopback or address.is_link_local or address.is_multicast
    if special or address.is_reserved or address.is_unspecified:
        assert closed(address) is not None


def test_a_hosts_own_address_is_known_for_what_it_is() -> None:
    assert is_own(ip_address("127.0.0.1"))
    assert not is_own(ip_address("8.8.8.8"))


def test_a_test_opens_a_range_by_argument_and_no_more_than_that() -> None:
    addresses = Addresses([ip_network("127.0.0.0/30")])
    assert addresses.refusal("127.0.0.1") is None
    assert addresses.refusal("127.0.0.4") == "127.0.0.4 is loopback"
    assert addresses.refusal("10.0.0.1") == "10.0.0.1 is private"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_lets_a_burst_go_and_then_its_rate() -> None:
    clock = Clock()
    bucket = TokenBucket(rate=100.0, burst=50.0, clock=clock)
    assert bucket.take(50) == 0
    assert bucket.take(25) == pytest.approx(0.25)
    clock.now += 0.25
    assert bucket.take(10) == pytest.approx(0.10)
    clock.now += 60
    assert bucket.take(50) == 0, "a long pause gives no more than a burst"
    assert bucket.take(1) == pytest.approx(0.01)


@given(st.lists(st.tuples(st.integers(1, 5000), st.floats(0, 2)), max_size=50))
def test_whoever_waits_as_told_is_never_faster_than_the_rate(takes: list[tuple[int, float]]) -> None:
    clock = Clock()
    bucket = TokenBucket(rate=1000.0, burst=250.0, clock=clock)
    moved = 0
    for amount, pause in takes:
        clock.now += pause
        clock.now += bucket.take(amount)
        moved += amount
        assert clock.now - 1000.0 >= (moved - 250.0) / 1000.0 - 1e-6


def test_what_was_held_back_to_the_end_explains_a_slow_call_and_nothing_else_does() -> None:
    clock = Clock()
    hold = Hold(clock)
    assert not hold.explains(10.0)
    for _ in range(8):
        hold.add(0.5)
        hold.add(0.25)  # of another connection, at the same time
        clock.now += 0.5
    assert hold.explains(40.0)
    assert not hold.explains(41.0), "4 s of 41 are not what made it slow"
    clock.now += 1.5
    assert not hold.explains(10.0), "it went on to something else"


def test_a_slow_flow_moves_as_much_at_a_time_as_goes_at_once() -> None:
    assert flow(kbytes_per_s=40, max_mbytes=1, clock=Clock()).chunk == 10 * 1024
    assert flow(kbytes_per_s=1, max_mbytes=1, clock=Clock()).chunk == 256
    assert flow(kbytes_per_s=100_000, max_mbytes=1, clock=Clock()).chunk == 65_536


def test_a_flow_ends_at_its_cap_and_stays_ended() -> None:
    one = flow(kbytes_per_s=1024, max_mbytes=1, clock=Clock())
    one.take(1 << 20)
    with pytest.raises(FlowExhausted):
        one.take(1)
    with pytest.raises(FlowExhausted):
        one.take(0)
    assert (one.moved, one.exhausted) == (1 << 20, True)
    assert BURST_S < 1
