"""Identifiers: a prefix that says what a thing is, and a UUIDv7 (RFC 9562) that sorts by time."""

import os
import time
from uuid import NAMESPACE_OID, UUID, uuid5


def uuid7() -> UUID:
    """A time-ordered UUID: 48 bits of Unix milliseconds, version, variant, 74 random bits."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds & (1 << 48) - 1) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    return UUID(int=value & ~(0x3 << 62) | 0x2 << 62)


def new_id(prefix: str) -> str:
    """``new_id("task")`` → ``task_0199c1d0…`` (32 hex digits)."""
    return f"{prefix}_{uuid7().hex}"


def derived_id(prefix: str, *parts: object) -> str:
    """An id that depends on ``parts`` alone, so that a transition that is run twice names the same thing (UUIDv5)."""
    return f"{prefix}_{uuid5(NAMESPACE_OID, '/'.join(map(str, parts))).hex}"


def incarnation() -> str:
    """A fresh identity for one process start; it is never reused, so a dead owner can never be mistaken for a live one."""
    return new_id(f"{os.uname().nodename[:24]}-{os.getpid()}")
