"""Hosts that a call's proxy answers itself, so that what lies behind them stays out of reach."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from longstride.contracts.v1.egress import Egress, EgressRule

PORT = 80
"""They are asked in plain HTTP: nothing leaves the host."""
KBYTES_PER_S, MAX_MBYTES = 10_000_000, 4096
"""It is no network; the workspace's own bounds hold what comes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was asked for."""

    body: BinaryIO
    """Closed by whoever sends it."""
    size: int
    """Bytes of it."""
    media_type: str
    told: str
    """For the record: what it was, and where it came from."""


class Unserved(Exception):
    """There is no answer; the text says why in a sentence."""

    def __init__(self, status: int, why: str) -> None:
        """
        Args:
            status: of HTTP.
            why: for the agent and the record.
        """
        super().__init__(why)
        self.status = status


class Ended(Protocol):
    """A ``threading.Event``, or anything that answers like one."""

    def is_set(self) -> bool:
        """Whether the call has ended, and nobody waits for an answer any more."""
        ...


@dataclass(slots=True)
class Caller:
    """Who waits for one answer, and pays for what is fetched for it, whether it is waited for to the end or not."""

    ended: Ended
    charge: Callable[[int], int] = int
    """Takes so many bytes from what the call may receive; returns how many of them it may."""
    fetched: int = 0
    """Bytes so far."""

    def took(self, amount: int) -> None:
        """So many bytes came from elsewhere.

        Raises:
            Unserved: nobody waits any more, or they are more than the call may receive.
        """
        if self.ended.is_set():
            raise Unserved(499, "the call has ended")
        allowed = self.charge(amount)
        self.fetched += allowed
        if allowed < amount:
            raise Unserved(403, "this call has received all that it may")


class Served(Protocol):
    """One host. May be asked from many threads."""

    def answer(self, path: str, caller: Caller, *, whole: bool = True) -> Answer:
        """What it has under a path. Blocks.

        Args:
            path: what is asked for.
            caller: told of each byte that is fetched.
            whole: whether the body is wanted; where it is not, nothing is fetched for it, and ``body`` may be empty.

        Raises:
            Unserved: nothing, or it cannot be had now.
        """
        ...


Sites = Mapping[str, Served]
"""By their hosts' names."""
NO_SITES: Sites = {}


def way_to(sites: Sites) -> Egress:
    """The rules of a call that reaches these hosts and no other."""
    rules = tuple(EgressRule(host=host, ports=(PORT,)) for host in sites)
    return Egress(rules=rules, kbytes_per_s=KBYTES_PER_S, max_mbytes=MAX_MBYTES)
