# ruff: noqa: PT012 - what must fail is a whole unit of work
"""Outbox, inbox, timers, dead letters, failures: nothing is lost, nothing is handled twice."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from longstride.storage.database import Database
from longstride.storage.outbox import CHANNEL
from longstride.storage.timers import DueTimer

HOUR = timedelta(hours=1)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


def now() -> datetime:
    return datetime.now(UTC)


def add(database: Database, *message_ids: str, not_before: datetime | None = None) -> list[int]:
    with database.begin() as uow:
        return [uow.outbox.add("{}", each, "kombu", "generated", not_before=not_before) for each in message_ids]


def test_a_promised_message_waits_whole_and_in_order(database: Database) -> None:
    with database.begin() as uow:
        first = uow.outbox.add('{"a":1}', "msg_1", "reply", "amq.gen-x", correlation_id="c-1", reply_to="amq.gen-y")
        uow.outbox.add('{"b":2}', "msg_2", "kombu", "generated")
    with database.begin() as uow:
        one, two = uow.outbox.claim(10)
    assert (one.id, one.message_id, one.carrier, one.routing_key) == (first, "msg_1", "reply", "amq.gen-x")
    assert (one.correlation_id, one.reply_to, one.wire, one.tries) == ("c-1", "amq.gen-y", '{"a":1}', 0)
    assert (two.message_id, two.correlation_id, two.reply_to) == ("msg_2", None, None)


def test_a_rolled_back_promise_is_none(database: Database) -> None:
    with pytest.raises(KeyError), database.begin() as uow:
        uow.outbox.add("{}", "msg_1", "kombu", "generated")
        raise KeyError
    with database.begin() as uow:
        assert uow.outbox.claim(10) == []


def test_ids_are_unique_over_blocks_threads_and_databases(database: Database, database_url: str) -> None:
    other = Database(database_url)
    with ThreadPoolExecutor(4) as pool:
        blocks = list(pool.map(lambda n: add((database, other)[n % 2], *(f"{n}-{m}" for m in range(30))), range(8)))
    other.close()
    ids = [each for block in blocks for each in block]
    assert len(set(ids)) == len(ids) == 240


def test_a_confirmed_message_is_deleted(database: Database) -> None:
    first, _ = add(database, "msg_1", "msg_2")
    with database.begin() as uow:
        uow.outbox.delete([first])
    with database.begin() as uow:
        assert [each.message_id for each in uow.outbox.claim(10)] == ["msg_2"]


def test_a_relay_that_dies_leaves_its_messages_to_the_next(database: Database) -> None:
    add(database, "msg_1")
    with pytest.raises(KeyError), database.begin() as uow:
        uow.outbox.delete([each.id for each in uow.outbox.claim(10)])
        raise KeyError
    with database.begin() as uow:
        assert len(uow.outbox.claim(10)) == 1


def test_two_relays_never_claim_the_same_message(database: Database) -> None:
    add(database, *map(str, range(6)))
    with database.begin() as first, database.begin() as second:
        mine, yours = first.outbox.claim(4), second.outbox.claim(4)
        assert [len(mine), len(yours)] == [4, 2]
        assert not {each.id for each in mine} & {each.id for each in yours}


def test_a_message_is_not_due_before_its_time(database: Database) -> None:
    add(database, "later", not_before=now() + HOUR)
    add(database, "now", not_before=now() - HOUR)
    with database.begin() as uow:
        assert [each.message_id for each in uow.outbox.claim(10)] == ["now"]


def test_fresh_messages_can_be_left_to_their_own_process(database: Database) -> None:
    with database.begin() as uow:
        uow.outbox.add("{}", "held", "kombu", "generated", hold_s=60)
        uow.outbox.add("{}", "free", "kombu", "generated")
    with database.begin() as uow:
        assert [each.message_id for each in uow.outbox.claim(10)] == ["free"]
        assert uow.outbox.claim(10, older_than_s=60) == []


def test_a_deferred_message_comes_back_unless_it_is_deleted(database: Database) -> None:
    ids = add(database, "msg_1", "msg_2")
    with database.begin() as uow:
        uow.outbox.defer(ids, 3600)
    with database.begin() as uow:
        assert uow.outbox.claim(10) == []
        uow.outbox.defer(ids, -1)
    with database.begin() as uow:
        assert len(uow.outbox.claim(10)) == 2


def test_a_failed_message_is_due_again_when_said(database: Database) -> None:
    (row_id,) = add(database, "msg_1")
    with database.begin() as uow:
        uow.outbox.failed(row_id, "no route", now() + HOUR)
        uow.outbox.failed(row_id, "no route", now() - HOUR)
    with database.begin() as uow:
        (message,) = uow.outbox.claim(10)
        assert message.tries == 2


def test_the_backlog_counts_what_is_due(database: Database) -> None:
    with database.begin() as uow:
        assert (uow.outbox.backlog().count, uow.outbox.backlog().oldest_age_s) == (0, 0.0)
    add(database, "old", not_before=now() - HOUR)
    add(database, "new")
    add(database, "later", not_before=now() + HOUR)
    with database.begin() as uow:
        backlog = uow.outbox.backlog()
    assert backlog.count == 2
    assert 3590 < backlog.oldest_age_s < 3700


@pytest.mark.parametrize("notify", [True, False])
def test_listeners_are_woken_once_a_commit_where_that_is_wanted(database_url: str, notify: bool) -> None:
    database = Database(database_url, notify_outbox=notify)
    with psycopg.connect(database_url, autocommit=True) as listener:
        listener.execute(f"LISTEN {CHANNEL}")
        add(database, "msg_1", "msg_2", "msg_3")
        add(database, "msg_4")
        heard = list(listener.notifies(timeout=0.5, stop_after=3))
    database.close()
    assert len(heard) == (2 if notify else 0)


def test_a_message_is_handled_once_a_consumer(database: Database) -> None:
    with database.begin() as uow:
        assert uow.inbox.add("planner", "msg_1")
    with database.begin() as uow:
        assert not uow.inbox.add("planner", "msg_1")
        assert uow.inbox.add("telemetry", "msg_1")


def test_a_rolled_back_handling_did_not_happen(database: Database) -> None:
    with pytest.raises(KeyError), database.begin() as uow:
        uow.inbox.add("planner", "msg_1")
        raise KeyError
    with database.begin() as uow:
        assert uow.inbox.add("planner", "msg_1")


def test_of_two_deliveries_at_once_one_is_handled(database: Database) -> None:
    together = threading.Barrier(4)

    def handle(_: int) -> bool:
        together.wait(10)
        with database.begin() as uow:
            return uow.inbox.add("planner", "msg_1")

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(handle, range(4))) == [False, False, False, True]


def test_the_inbox_forgets_what_is_old(database: Database) -> None:
    with database.begin() as uow:
        uow.inbox.add("planner", "msg_1")
        assert uow.inbox.prune(HOUR) == 0
    with database.begin() as uow:
        assert uow.inbox.prune(-HOUR) == 1
        assert uow.inbox.add("planner", "msg_1")


def set_timer(database: Database, key: str, due_in_s: float, every_s: float | None = None) -> datetime:
    due_at = now() + timedelta(seconds=due_in_s)
    with database.begin() as uow:
        uow.timers.set(key, due_at, "kombu", "expire_task", f'"{key}"', every_s, correlation_id="c", reply_to="r")
    return due_at


def due(database: Database) -> list[DueTimer]:
    with database.begin() as uow:
        return uow.timers.due(10)


def test_a_timer_goes_off_once(database: Database) -> None:
    at = set_timer(database, "a", -1)
    set_timer(database, "b", 3600)
    assert due(database) == [DueTimer("a", at, "kombu", "expire_task", '"a"', None, "c", "r")]
    assert due(database) == []


def test_a_timer_of_a_rolled_back_transaction_goes_off_again(database: Database) -> None:
    set_timer(database, "a", -1)
    with pytest.raises(KeyError), database.begin() as uow:
        uow.timers.due(10)
        raise KeyError
    assert [timer.key for timer in due(database)] == ["a"]


def test_a_timer_can_be_moved_and_removed(database: Database) -> None:
    set_timer(database, "a", -1)
    set_timer(database, "a", 3600)
    assert due(database) == []
    set_timer(database, "a", -1)
    with database.begin() as uow:
        uow.timers.remove("a")
        uow.timers.remove("never set")
    assert due(database) == []


def test_a_schedule_moves_on_and_does_not_make_up_for_missed_times(database: Database) -> None:
    at = set_timer(database, "a", -250, every_s=100)
    assert [timer.due_at for timer in due(database)] == [at]
    assert due(database) == []
    with database.begin() as uow:
        seconds = uow.timers.next_in_s()
    assert seconds is not None
    assert 45 < seconds <= 50


def test_a_schedule_that_is_set_again_keeps_its_next_time(database: Database) -> None:
    def schedule(wire: str, every_s: float) -> None:
        with database.begin() as uow:
            uow.timers.schedule("sweep", "celery", "longstride.sweep", wire, every_s)

    schedule('"first"', 3600)
    assert [timer.wire for timer in due(database)] == ['"first"'], "a new one goes off at once"
    schedule('"second"', 60)
    assert due(database) == [], "a restart neither brings it forward"
    with database.begin() as uow:
        seconds = uow.timers.next_in_s("sw")
        assert uow.timers.next_in_s("deadline:") is None
    assert seconds is not None
    assert 3500 < seconds <= 3600, "nor puts it off"


def test_the_next_timer_is_known_ahead(database: Database) -> None:
    with database.begin() as uow:
        assert uow.timers.next_in_s() is None
    set_timer(database, "a", 3600)
    set_timer(database, "b", -60)
    with database.begin() as uow:
        seconds = uow.timers.next_in_s()
    assert seconds is not None
    assert -120 < seconds <= -60


@pytest.mark.parametrize("every_s", [0.0, -1.0])
def test_a_schedule_without_an_interval_is_refused(database: Database, every_s: float) -> None:
    with pytest.raises(ValueError, match="every_s must be positive"):
        set_timer(database, "a", 0, every_s)


def test_two_processes_never_take_the_same_timer(database: Database) -> None:
    for key in "abcd":
        set_timer(database, key, -1)
    with database.begin() as first, database.begin() as second:
        mine, yours = first.timers.due(3), second.timers.due(3)
        assert [len(mine), len(yours)] == [3, 1]
        assert not {timer.key for timer in mine} & {timer.key for timer in yours}


def test_a_dead_letter_is_kept_whole_and_replayed_once(database: Database) -> None:
    with database.begin() as uow:
        letter = uow.dead_letters.add(
            "planner", "not JSON", b"\x00\xff{", {"x-death": [1]}, message_id="msg_1", type="x"
        )
        other = uow.dead_letters.add("planner", "unknown version", b"{}", {})
    with database.begin() as uow:
        found = uow.dead_letters.get(letter)
        assert found is not None
        assert (found.body, found.headers, found.reason) == (b"\x00\xff{", {"x-death": [1]}, "not JSON")
        assert (found.message_id, found.type, found.replayed_at) == ("msg_1", "x", None)
        assert [each.id for each in uow.dead_letters.list()] == [other, letter]
        assert [each.id for each in uow.dead_letters.list(before=other)] == [letter]
        assert uow.dead_letters.mark_replayed(letter)
    with database.begin() as uow:
        assert not uow.dead_letters.mark_replayed(letter)
        assert [each.id for each in uow.dead_letters.list()] == [other]
        assert [each.id for each in uow.dead_letters.list(replayed=True)] == [other, letter]
        assert uow.dead_letters.get(0) is None


def test_failures_are_counted_a_consumer_and_message(database: Database) -> None:
    def count(consumer: str, message_id: str) -> int:
        with database.begin() as uow:
            return uow.delivery_failures.count(consumer, message_id, "boom")

    assert [count("planner", "msg_1"), count("planner", "msg_1"), count("telemetry", "msg_1")] == [1, 2, 1]
    with database.begin() as uow:
        uow.delivery_failures.forget("planner", "msg_1")
    assert count("planner", "msg_1") == 1
    with database.begin() as uow:
        assert uow.delivery_failures.prune(HOUR) == 0
        assert uow.delivery_failures.prune(-HOUR) == 2
