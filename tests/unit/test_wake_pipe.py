"""What wakes Celery's loop from a signal handler, with kombu's own hub."""

import os
import select
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kombu.asynchronous import Hub

from longstride.messaging.wake_pipe import WakePipe


@pytest.fixture
def pipe() -> Iterator[WakePipe]:
    with closing(WakePipe()) as pipe:
        yield pipe


@pytest.fixture
def hub() -> Iterator[Hub]:
    with closing(Hub()) as hub:
        yield hub


def waiting(pipe: WakePipe) -> bool:
    """Whether something was told that nobody has heard."""
    return bool(select.select([pipe._ends[0]], [], [], 0)[0])


def test_a_signal_handler_is_heard_by_the_loop(pipe: WakePipe, hub: Hub) -> None:
    before = signal.signal(signal.SIGUSR2, lambda *_: pipe.wake())
    try:
        pipe.listen(hub)
        os.kill(os.getpid(), signal.SIGUSR2)
        assert waiting(pipe)
        next(hub.create_loop())
        assert not waiting(pipe)
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_it_is_heard_after_a_reset_of_the_hub(pipe: WakePipe, hub: Hub) -> None:
    """As Celery before 5.7 resets it with each connection that is lost."""
    pipe.listen(hub)
    hub.reset()
    pipe.listen(hub)
    pipe.listen(hub)
    pipe.wake()
    next(hub.create_loop())
    assert not waiting(pipe)


def test_a_full_pipe_holds_no_handler_up(pipe: WakePipe, hub: Hub) -> None:
    for _ in range(100_000):
        pipe.wake()
    pipe.listen(hub)
    next(hub.create_loop())
    assert not waiting(pipe)


def test_closed_it_keeps_nothing_and_wakes_nobody(pipe: WakePipe) -> None:
    ends = pipe._ends
    pipe.close()
    assert not [end for end in ends if Path(f"/proc/self/fd/{end}").exists()]
    pipe.wake()
    pipe.close()
