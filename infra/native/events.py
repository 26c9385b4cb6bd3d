"""What a supervisor waits for: signals, the end of children, the end of its owner, requests."""

import os
import selectors
import signal
import socket
from collections.abc import Callable
from typing import Any

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stopped(Exception):
    """It is time to end: the text says why."""


class Events:
    """One place to wait, so that no wait is deaf to the signal or the death that should end it."""

    def __init__(self, owner: int | None, child_ended: Callable[[], None]) -> None:
        """`owner`: pid of the process whose end is ours too. `child_ended`: called after each SIGCHLD."""
        self._selector = selectors.DefaultSelector()
        self._child_ended = child_ended
        self._watch_signals()
        if owner is not None:
            self._watch_owner(owner)

    def _watch_signals(self) -> None:
        self._signals, writer = socket.socketpair()
        self._signals.setblocking(False)
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.detach())
        for number in (*ENDING, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)  # The wake-up byte says which came; this keeps the default away.
        self.watch(self._signals, self._take_signals)

    def _take_signals(self) -> None:
        for number in self._signals.recv(4096):
            if number != signal.SIGCHLD:
                raise Stopped(signal.Signals(number).name)
        self._child_ended()

    def _watch_owner(self, owner: int) -> None:
        def ended() -> None:
            raise Stopped(f"its owner, process {owner}, ended")

        try:
            # A pidfd rather than PR_SET_PDEATHSIG: that one fires when the owner's *thread* ends.
            self.watch(os.pidfd_open(owner), ended)
        except ProcessLookupError:
            ended()

    def watch(self, file: socket.socket | int, handler: Callable[[], Any]) -> None:
        """Call `handler` from `pause` whenever `file` can be read."""
        self._selector.register(file, selectors.EVENT_READ, handler)

    def ignore(self, file: socket.socket) -> None:
        self._selector.unregister(file)

    def pause(self, seconds: float | None = None) -> None:
        """Wait for `seconds` or the next event, and handle what came. Raises `Stopped` when it is time to end."""
        for key, _ in self._selector.select(seconds):
            key.data()


def ignore_ending() -> None:
    """From here on the signals that end a process are ignored: it is ending already."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
