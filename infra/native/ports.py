"""TCP ports that no other stack on this machine uses."""

import json
import random
import socket
from pathlib import Path
from typing import Self

from infra.native.errors import StackError
from infra.native.private import write_private

HOST = "127.0.0.1"
RANGE = range(20000, 32000)
"""Below Linux's ephemeral ports (32768 and up), where an outgoing connection may take a port between choice and use."""
CANDIDATES = 500
"""How many to try before giving up."""
FILE = "ports.json"


class Ports:
    """The ports of one stack by name, kept from other stacks for as long as this object lives.

    A port that is only *seen* free can be taken by a second stack before the server binds it. So each is also
    reserved, by an abstract Unix socket of its number: those have the scope of a network namespace, as TCP ports do,
    belong to one process at a time, and vanish with it however it dies.
    """

    def __init__(self, folder: Path, names: tuple[str, ...]) -> None:
        """Reserve a port for each of `names`: the one that `folder` had before where that is free, else another."""
        self._reservations: list[socket.socket] = []
        before = recorded(folder)
        try:
            self.numbers = {name: self._choose(before.get(name)) for name in names}
        except StackError:
            self.release()
            raise
        write_private(folder / FILE, json.dumps(self.numbers, indent=1))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _choose(self, preferred: int | None) -> int:
        candidates = random.sample(RANGE, CANDIDATES)
        for port in candidates if preferred is None else [preferred, *candidates]:
            if self._reserve(port):
                return port
        raise StackError(f"none of {len(candidates)} TCP ports tried between {RANGE.start} and {RANGE.stop} is free")

    def _reserve(self, port: int) -> bool:
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0longstride-port-{port}")
            with socket.socket() as probe:
                # As servers bind it: a port whose old connections are in TIME_WAIT is free.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((HOST, port))
        except OSError:
            reservation.close()
            return False
        self._reservations.append(reservation)
        return True

    def release(self) -> None:
        for reservation in self._reservations:
            reservation.close()


def recorded(folder: Path) -> dict[str, int]:
    """The ports that the stack of `folder` has, or had when it last ran."""
    file = folder / FILE
    return json.loads(file.read_text()) if file.exists() else {}
