# ruff: noqa: PT012 - what must fail is a whole unit of work
"""Task heads and events: one writer a version, and a fair order of admission."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from longstride.storage.database import Database
from longstride.storage.errors import AlreadyExists, VersionConflict
from tests.support.tasks import a_head, insert

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


def test_a_head_comes_back_as_it_was_saved(database: Database) -> None:
    head = a_head(
        priority=9,
        policy="builtin@7",
        concurrency_key="repo",
        idempotency_key="once",
        group_id="group",
        parent_task_id="task_0",
        reply_to="amq.gen-1",
        correlation_id="c-1",
        traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
        created_at=NOON,
    )
    ended = replace(
        head,
        status="succeeded",
        version=7,
        outcome="succeeded",
        reason="checks_passed",
        answer="42",
        reward=0.5,
        steps=3,
        input_tokens=2**40,
        output_tokens=9,
        cost_usd=0.25,
        started_at=NOON,
        ended_at=NOON + timedelta(seconds=1),
    )
    with database.begin() as uow:
        uow.tasks.insert(head)
        uow.tasks.save(ended, 0)
    with database.begin() as uow:
        found = uow.tasks.head(head.id)
    assert found is not None
    assert found.updated_at is not None
    assert replace(found, updated_at=None) == ended


def test_an_unknown_task_has_no_head(database: Database) -> None:
    with database.begin() as uow:
        assert uow.tasks.head("task_nowhere") is None


@pytest.mark.parametrize("locked", [True, False])
def test_a_save_over_another_version_is_a_conflict(database: Database, locked: bool) -> None:
    task_id = insert(database)
    with pytest.raises(VersionConflict, match=task_id), database.begin() as uow:
        head = uow.tasks.head(task_id, lock=locked)
        assert head is not None
        uow.tasks.save(replace(head, version=6), expected_version=5)


def test_a_second_save_in_a_transaction_goes_on_from_the_first(database: Database) -> None:
    task_id = insert(database)
    with database.begin() as uow:
        head = uow.tasks.head(task_id)
        assert head is not None
        uow.tasks.save(replace(head, version=2), expected_version=0)
        uow.tasks.save(replace(head, version=3), expected_version=2)
        found = uow.tasks.head(task_id)
        assert found is not None
        assert found.version == 3


def test_of_two_writers_without_a_lock_one_gets_a_conflict(database: Database) -> None:
    task_id = insert(database)
    both_have_read = threading.Barrier(2)

    def write(_: int) -> str:
        try:
            with database.begin() as uow:
                head = uow.tasks.head(task_id, lock=False)
                assert head is not None
                both_have_read.wait(10)
                uow.tasks.save(replace(head, version=1), expected_version=0)
            return "saved"
        except VersionConflict:
            return "conflict"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(write, range(2))) == ["conflict", "saved"]


def test_a_locked_head_makes_the_next_reader_wait(database: Database) -> None:
    task_id = insert(database)

    def increment(_: int) -> None:
        with database.begin() as uow:
            head = uow.tasks.head(task_id)
            assert head is not None
            uow.tasks.save(replace(head, version=head.version + 1), expected_version=head.version)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(increment, range(40)))
    with database.begin() as uow:
        head = uow.tasks.head(task_id)
        assert head is not None
        assert head.version == 40


def test_an_idempotency_key_is_one_task_a_tenant(database: Database) -> None:
    first = insert(database, tenant="a", idempotency_key="once")
    other = insert(database, tenant="b", idempotency_key="once")
    with pytest.raises(AlreadyExists, match="idempotency_key"), database.begin() as uow:
        uow.tasks.insert(a_head(tenant="a", idempotency_key="once"))
    with database.begin() as uow:
        for tenant, task_id in (("a", first), ("b", other)):
            found = uow.tasks.by_idempotency_key(tenant, "once")
            assert found is not None
            assert found.id == task_id
        assert uow.tasks.by_idempotency_key("c", "once") is None


def test_a_list_is_filtered_and_paged_newest_first(database: Database) -> None:
    ids = [
        insert(database, tenant=tenant, status=status, session_id="s", created_at=NOON + timedelta(seconds=number // 2))
        for number, (tenant, status) in enumerate(
            [("a", "queued"), ("b", "running"), ("a", "running"), ("a", "queued")]
        )
    ]
    insert(database, session_id="other")
    with database.begin() as uow:

        def listed(**wanted: Any) -> list[str]:
            return [head.id for head in uow.tasks.list(**wanted)]

        assert listed(session_id="s") == ids[::-1]
        assert listed(session_id="s", tenant="a") == [ids[3], ids[2], ids[0]]
        assert listed(session_id="s", status="running") == [ids[2], ids[1]]
        assert listed(session_id="s", limit=2) == ids[:1:-1]
        assert listed(session_id="s", limit=2, before=ids[2]) == ids[1::-1]
        assert listed(session_id="s", before=ids[0]) == []


def test_children_are_listed_oldest_first(database: Database) -> None:
    parent = insert(database)
    ids = [insert(database, parent_task_id=parent) for _ in range(3)]
    insert(database, parent_task_id="another")
    with database.begin() as uow:
        assert [head.id for head in uow.tasks.children(parent)] == ids


def test_events_are_read_in_order_from_where_one_left_off(database: Database) -> None:
    task_id = insert(database)
    with database.begin() as uow:
        assert uow.events.append(task_id, 0, [("a", {"n": 1}), ("b", {"n": 2})], "msg_1") == 2
    with database.begin() as uow:
        assert uow.events.append(task_id, 2, [("c", {"n": 3})]) == 3
    with database.begin() as uow:
        events = uow.events.read(task_id)
        assert [(e.seq, e.type, e.payload, e.causation_id) for e in events] == [
            (1, "a", {"n": 1}, "msg_1"),
            (2, "b", {"n": 2}, "msg_1"),
            (3, "c", {"n": 3}, None),
        ]
        assert [e.seq for e in uow.events.read(task_id, after=1)] == [2, 3]
        assert [e.seq for e in uow.events.read(task_id, after=1, limit=1)] == [2]
        assert uow.events.read("task_nowhere") == []


def test_two_appends_after_the_same_event_conflict(database: Database) -> None:
    task_id = insert(database)
    with database.begin() as uow:
        uow.events.append(task_id, 0, [("a", {})])
    with pytest.raises(VersionConflict, match=task_id), database.begin() as uow:
        uow.events.append(task_id, 0, [("b", {})])
    with database.begin() as uow:
        assert [e.type for e in uow.events.read(task_id)] == ["a"]


# Admission


def queue(database: Database, *wanted: dict[str, Any]) -> list[str]:
    """Queue tasks, each a second younger than the one before."""
    return [
        insert(database, created_at=NOON + timedelta(seconds=number), **changes)
        for number, changes in enumerate(wanted)
    ]


def admit(database: Database, capacity: int) -> list[str]:
    """Admit, and start what was admitted, as the planner does."""
    with database.begin() as uow:
        admitted = uow.tasks.admit(capacity)
        for task_id in admitted:
            head = uow.tasks.head(task_id)
            assert head is not None
            uow.tasks.save(replace(head, status="running", version=head.version + 1), head.version)
        return admitted


def end(database: Database, task_id: str) -> None:
    with database.begin() as uow:
        head = uow.tasks.head(task_id)
        assert head is not None
        ended = replace(head, status="succeeded", outcome="succeeded", ended_at=NOON, version=head.version + 1)
        uow.tasks.save(ended, head.version)


def test_admits_up_to_the_capacity(database: Database) -> None:
    ids = queue(database, {}, {}, {})
    assert admit(database, 2) == ids[:2]
    assert admit(database, 2) == []
    assert admit(database, 1) == []
    end(database, ids[0])
    assert admit(database, 2) == ids[2:]
    assert admit(database, 2) == []


def test_parked_tasks_hold_no_capacity(database: Database) -> None:
    insert(database, status="parked")
    ids = queue(database, {})
    assert admit(database, 1) == ids


def test_priority_goes_before_age(database: Database) -> None:
    ids = queue(database, {"priority": 1}, {"priority": 5}, {"priority": 9}, {"priority": 5})
    assert admit(database, 9) == [ids[2], ids[1], ids[3], ids[0]]


def test_tenants_take_turns_whatever_their_backlog_and_priorities(database: Database) -> None:
    ids = queue(
        database,
        *({"tenant": "a", "priority": 9} for _ in range(4)),
        *({"tenant": "b", "priority": 0} for _ in range(2)),
        {"tenant": "c"},
    )
    a, b, c = ids[:4], ids[4:6], ids[6:]
    assert admit(database, 7) == [a[0], b[0], c[0], a[1], b[1], a[2], a[3]]


def test_the_tenant_served_longest_ago_is_next(database: Database) -> None:
    ids = queue(database, *({"tenant": tenant} for tenant in "abcabcabc"))
    started: list[str] = []
    for _ in ids:
        (task_id,) = admit(database, 1)
        started.append(task_id)
        end(database, task_id)
    assert started == ids
    late = queue(database, {"tenant": "c"}, {"tenant": "a"}, {"tenant": "new"}, {"tenant": "b"})
    assert admit(database, 4) == [late[2], late[1], late[3], late[0]]


def test_of_a_concurrency_key_one_task_runs_at_a_time(database: Database) -> None:
    ids = queue(database, {"concurrency_key": "k"}, {"concurrency_key": "k"}, {}, {"concurrency_key": "other"})
    assert admit(database, 9) == [ids[0], ids[2], ids[3]]
    assert admit(database, 9) == []
    end(database, ids[0])
    assert admit(database, 9) == [ids[1]]


def test_within_a_key_priority_goes_before_age(database: Database) -> None:
    ids = queue(database, {"concurrency_key": "k", "priority": 1}, {"concurrency_key": "k", "priority": 2})
    assert admit(database, 9) == [ids[1]]


def test_a_parked_task_keeps_its_key(database: Database) -> None:
    insert(database, status="parked", concurrency_key="k")
    queue(database, {"concurrency_key": "k"})
    assert admit(database, 9) == []


def test_a_key_is_a_tenants_own(database: Database) -> None:
    ids = queue(database, {"tenant": "a", "concurrency_key": "k"}, {"tenant": "b", "concurrency_key": "k"})
    assert admit(database, 9) == ids


def test_a_long_queue_behind_a_held_key_blocks_nobody(database: Database) -> None:
    insert(database, status="running", concurrency_key="k")
    queue(database, *({"concurrency_key": "k", "priority": 9} for _ in range(50)))
    (free,) = queue(database, {"priority": 0})
    assert admit(database, 3) == [free]


def test_a_locked_task_is_passed_over(database: Database) -> None:
    stuck, free = queue(database, {}, {})
    with database.begin() as uow:
        uow.tasks.head(stuck)
        assert admit(database, 1) == [free]


def test_what_has_just_been_cancelled_is_not_admitted(database: Database) -> None:
    gone, free = queue(database, {}, {})
    end(database, gone)
    assert admit(database, 2) == [free]


def test_a_rolled_back_admission_leaves_everything_as_it_was(database: Database) -> None:
    ids = queue(database, {"tenant": "a"}, {"tenant": "b"})
    with pytest.raises(KeyError), database.begin() as uow:
        uow.tasks.admit(1)
        raise KeyError
    assert admit(database, 1) == ids[:1]


def test_no_capacity_admits_nobody(database: Database) -> None:
    queue(database, {})
    assert admit(database, 0) == []


def test_many_planners_never_exceed_the_capacity_nor_leave_room(database: Database) -> None:
    capacity, total = 5, 60
    queue(database, *({"tenant": f"t{n % 3}", "concurrency_key": f"k{n % 7}" if n % 2 else None} for n in range(total)))
    running: set[str] = set()
    most, ended = 0, 0
    guard = threading.Lock()
    deadline = time.monotonic() + 60

    def plan(_: int) -> None:
        nonlocal most, ended
        while ended < total and time.monotonic() < deadline:
            admitted = admit(database, capacity)
            with guard:
                assert not running & set(admitted), "admitted twice"
                running.update(admitted)
                most = max(most, len(running))
            for task_id in admitted:
                with guard:  # before the slot is free in the database, so that the count never lags behind it
                    running.discard(task_id)
                end(database, task_id)
                with guard:
                    ended += 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(plan, range(4)))
    assert ended == total
    assert most <= capacity
    with database.begin() as uow:
        assert uow.tasks.list(status="queued") == []


def test_an_end_and_a_submission_at_once_never_leave_the_queued_task_behind(database: Database) -> None:
    """Whoever admits second sees what the first committed: a freed slot, or the queued task."""
    for _ in range(20):
        running = insert(database, status="running")
        both = threading.Barrier(2)

        def finish(running: str = running, both: threading.Barrier = both) -> list[str]:
            both.wait(10)
            with database.begin() as uow:
                head = uow.tasks.head(running)
                assert head is not None
                uow.tasks.save(replace(head, status="succeeded", outcome="succeeded", ended_at=NOON, version=1), 0)
                return start(uow)

        def submit(both: threading.Barrier = both) -> list[str]:
            both.wait(10)
            with database.begin() as uow:
                uow.tasks.insert(a_head())
                return start(uow)

        with ThreadPoolExecutor(2) as pool:
            first, second = pool.submit(finish), pool.submit(submit)
            admitted = first.result() + second.result()
        assert len(admitted) == 1
        end(database, admitted[0])


def start(uow: Any) -> list[str]:
    admitted: list[str] = uow.tasks.admit(1)
    for task_id in admitted:
        head = uow.tasks.head(task_id)
        uow.tasks.save(replace(head, status="running", version=head.version + 1), head.version)
    return admitted
