"""The bounded queue: what it delivers, what it drops, and that nobody waits for it."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from longstride.observability.conveyor import STALLED_S, Conveyor
from tests.support.eventually import eventually


class Receiver:
    """Takes batches, or does what it is told to instead."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.calls = 0
        self.before: Callable[[], object] = lambda: None

    def __call__(self, batch: Sequence[int]) -> None:
        self.calls += 1
        self.before()
        self.batches.append(list(batch))

    @property
    def items(self) -> list[int]:
        return [item for batch in self.batches for item in batch]


class Gate:
    """Holds a receiver up until it is opened."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.entered.set()
        assert self.opened.wait(30)


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


def refuse() -> None:
    raise ConnectionRefusedError("nobody there")


def test_items_arrive_in_order_and_in_batches(receiver: Receiver) -> None:
    conveyor = Conveyor("test", receiver, batch=10, interval_s=30)
    assert all(conveyor.offer(n) for n in range(25))
    assert conveyor.flush(10)
    assert receiver.items == list(range(25))
    assert max(map(len, receiver.batches)) <= 10
    assert conveyor.close(10)


def test_a_full_batch_does_not_wait(receiver: Receiver) -> None:
    done = threading.Event()
    receiver.before = done.set
    conveyor = Conveyor("test", receiver, batch=5, interval_s=600)
    for n in range(5):
        conveyor.offer(n)
    assert done.wait(60)
    assert conveyor.close(10)


def test_a_part_of_a_batch_waits_no_longer_than_the_interval(receiver: Receiver) -> None:
    done = threading.Event()
    receiver.before = done.set
    conveyor = Conveyor("test", receiver, batch=1000, interval_s=0.01)
    conveyor.offer(1)
    assert done.wait(60)
    assert conveyor.close(10)


def test_a_hanging_receiver_costs_its_users_nothing_but_items(receiver: Receiver, gate: Gate) -> None:
    receiver.before = gate
    conveyor = Conveyor("test", receiver, capacity=10, batch=1, interval_s=0.01)
    conveyor.offer(0)
    assert gate.entered.wait(60)
    started = time.perf_counter()
    taken = [conveyor.offer(n) for n in range(1, 1001)]
    assert time.perf_counter() - started < 1
    assert taken.count(True) == 10
    assert conveyor.dropped == 990
    assert not conveyor.flush(0.05)
    started = time.perf_counter()
    assert not conveyor.close(0.2)
    assert 0.15 < time.perf_counter() - started < 2
    assert conveyor.dropped == 1000
    assert not conveyor.offer(1)


def test_an_outage_is_survived_without_loss(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    failures = iter([refuse, refuse, refuse])
    receiver.before = lambda: next(failures, lambda: None)()
    conveyor = Conveyor("span store", receiver, interval_s=0.01, backoff_s=0.01)
    with caplog.at_level("INFO"):
        conveyor.offer(7)
        eventually(lambda: conveyor.delivered == 1)
    assert receiver.items == [7]
    assert receiver.calls == 4
    assert conveyor.dropped == 0
    assert [record.getMessage() for record in caplog.records] == [
        "telemetry to span store fails (ConnectionRefusedError: nobody there); work goes on without it",
        "telemetry to span store works again; 0 items were dropped in all",
    ]
    assert conveyor.close(10)


def test_a_batch_that_is_never_taken_makes_way(receiver: Receiver) -> None:
    receiver.before = refuse
    conveyor = Conveyor("test", receiver, batch=3, interval_s=0.01, tries=2, backoff_s=0.01)
    for n in range(3):
        conveyor.offer(n)
    eventually(lambda: conveyor.dropped == 3)
    assert conveyor.flush(10)  # given up, so that there is nothing to wait for
    assert (conveyor.dropped, conveyor.delivered, conveyor.failing) == (3, 0, True)
    receiver.before = lambda: None
    conveyor.offer(4)
    eventually(lambda: conveyor.delivered == 1)
    assert (conveyor.dropped, conveyor.failing) == (3, False)
    assert conveyor.close(10)


def test_flushing_again_and_again_does_not_wait_for_a_receiver_that_is_down(receiver: Receiver) -> None:
    receiver.before = refuse
    conveyor = Conveyor("test", receiver, interval_s=0.01, backoff_s=600, max_backoff_s=600)
    started = time.perf_counter()
    for n in range(10):
        conveyor.offer(n)
        assert not conveyor.flush(30)
    assert time.perf_counter() - started < 10
    assert not conveyor.close(10)


def test_nor_for_one_that_hangs(receiver: Receiver, gate: Gate) -> None:
    receiver.before = gate
    conveyor = Conveyor("test", receiver, interval_s=0.01)
    conveyor.offer(0)
    assert not conveyor.flush(STALLED_S + 0.5)  # the first one does not know yet
    started = time.perf_counter()
    for n in range(10):
        conveyor.offer(n)
        assert not conveyor.flush(30)
    assert time.perf_counter() - started < 10
    gate.opened.set()
    assert conveyor.close(10)
    assert receiver.items == [0, *range(10)]


def test_closing_tries_once_more_and_does_not_back_off(receiver: Receiver) -> None:
    receiver.before = refuse
    conveyor = Conveyor("test", receiver, batch=1, interval_s=0.01, backoff_s=600, max_backoff_s=600)
    conveyor.offer(1)
    conveyor.offer(2)
    started = time.perf_counter()
    assert not conveyor.close(30)
    assert time.perf_counter() - started < 10
    assert conveyor.dropped == 2


def test_closing_one_that_was_never_used_is_instant(receiver: Receiver) -> None:
    assert Conveyor("test", receiver).close(0)


def test_offers_from_many_threads_are_all_delivered(receiver: Receiver) -> None:
    conveyor = Conveyor("test", receiver, batch=64, interval_s=0.001)
    threads = [threading.Thread(target=lambda: [conveyor.offer(n) for n in range(500)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert conveyor.close(10)
    assert sorted(receiver.items) == sorted(list(range(500)) * 8)


def test_a_forked_child_has_a_queue_and_a_thread_of_its_own(receiver: Receiver, gate: Gate) -> None:
    receiver.before = gate
    conveyor = Conveyor("test", receiver, batch=1, interval_s=0.01)
    conveyor.offer(1)
    assert gate.entered.wait(60)
    conveyor.offer(2)  # still queued when the child is born: the parent's to deliver
    read_end, write_end = os.pipe()
    with conveyor._changed:  # a lock held by nobody in the child
        child = os.fork()
        if child == 0:
            conveyor._deliver = lambda batch: os.write(write_end, repr(list(batch)).encode())
            conveyor.offer(3)
            os._exit(0 if conveyor.close(10) else 1)
    os.close(write_end)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with os.fdopen(read_end) as pipe:
        assert pipe.read() == "[3]"
    gate.opened.set()
    assert conveyor.close(10)
    assert receiver.items == [1, 2]


def test_where_no_thread_can_start_items_are_dropped(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    conveyor = Conveyor("test", receiver)
    assert not conveyor.offer(1)
    assert conveyor.dropped == 1
