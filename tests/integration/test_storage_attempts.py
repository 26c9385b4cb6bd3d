"""Leases: one owner at a time, one answer a phase, and nobody's work lost from sight."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from longstride.storage.attempts import Answered, Claim, Gone, Held, Lease, OverdueAttempt
from longstride.storage.database import Database
from longstride.storage.errors import AlreadyExists
from tests.support.tasks import insert

LONG = 3600.0


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def task_id(database: Database) -> str:
    return insert(database, status="running")


def dispatch(database: Database, task_id: str, message_id: str = "msg_1", step: int = 1, attempt: int = 1) -> None:
    with database.begin() as uow:
        uow.attempts.dispatch(task_id, step, "execute", attempt, message_id, f'{{"message_id": "{message_id}"}}')


def claim(database: Database, owner: str = "me", message_id: str = "msg_1", ttl_s: float = LONG) -> Claim:
    with database.begin(durable=False) as uow:
        return uow.attempts.claim(message_id, owner, ttl_s)


def leased(database: Database, owner: str = "me", message_id: str = "msg_1", ttl_s: float = LONG) -> Lease:
    lease = claim(database, owner, message_id, ttl_s)
    assert isinstance(lease, Lease)
    return lease


def answer(database: Database, lease: Lease, text: str = "done") -> bool:
    with database.begin() as uow:
        return uow.attempts.answer(lease, {"text": text})


def renew(database: Database, lease: Lease, ttl_s: float = LONG) -> bool:
    with database.begin(durable=False) as uow:
        return uow.attempts.renew(lease, ttl_s)


def overdue(
    database: Database, unclaimed_grace_s: float = LONG, unsettled_grace_s: float = LONG
) -> list[OverdueAttempt]:
    with database.begin() as uow:
        return uow.attempts.expired(10, unclaimed_grace_s, unsettled_grace_s)


def test_a_claim_gives_the_lease_of_what_was_dispatched(database: Database, task_id: str) -> None:
    dispatch(database, task_id, step=4, attempt=2)
    lease = leased(database, ttl_s=60)
    assert (lease.task_id, lease.step, lease.phase, lease.attempt) == (task_id, 4, "execute", 2)
    assert (lease.owner, lease.generation) == ("me", 1)
    assert abs(lease.expires_at - datetime.now(UTC) - timedelta(seconds=60)) < timedelta(seconds=30)


def test_a_command_is_dispatched_once(database: Database, task_id: str) -> None:
    dispatch(database, task_id)
    with pytest.raises(AlreadyExists, match="attempts_message_id"):
        dispatch(database, task_id, step=2)
    with pytest.raises(AlreadyExists, match="attempts_pkey"):
        dispatch(database, task_id, message_id="msg_2")


def test_an_unknown_command_is_gone(database: Database) -> None:
    assert claim(database, message_id="msg_nowhere") == Gone(None)


def test_a_held_lease_is_not_given_away_even_when_it_has_expired(database: Database, task_id: str) -> None:
    dispatch(database, task_id)
    for ttl_s in (LONG, 0.0):
        lease = leased(database) if ttl_s else None
        if lease:
            renew(database, lease, 0.0)
        held = claim(database, "you")
        assert isinstance(held, Held)
        assert held.owner == "me"


def test_of_many_that_claim_at_once_one_gets_the_lease(database: Database, task_id: str) -> None:
    dispatch(database, task_id)
    together = threading.Barrier(4)

    def race(owner: str) -> Claim:
        together.wait(10)
        return claim(database, owner)

    with ThreadPoolExecutor(4) as pool:
        claims = list(pool.map(race, ["a", "b", "c", "d"]))
    assert sorted(type(each).__name__ for each in claims) == ["Held", "Held", "Held", "Lease"]


def test_an_answer_is_recorded_once_and_given_to_whoever_asks_again(database: Database, task_id: str) -> None:
    dispatch(database, task_id)
    lease = leased(database)
    assert answer(database, lease, "first")
    assert not answer(database, lease, "second")
    assert claim(database, "you") == Answered({"text": "first"})


def test_a_lease_that_was_answered_cannot_be_renewed_or_released(database: Database, task_id: str) -> None:
    dispatch(database, task_id)
    lease = leased(database)
    answer(database, lease)
    assert not renew(database, lease)
    with database.begin() as uow:
        assert uow.attempts.release(lease) is None


def test_a_heartbeat_keeps_a_lease_from_the_reaper(database: Database, task_id: str) -> None:
    dispatch(database, task_id)
    lease = leased(database, ttl_s=0.0)
    assert [each.status for each in overdue(database)] == ["leased"]
    assert renew(database, lease)
    assert overdue(database) == []


def test_a_lost_lease_is_fenced_off_from_everything(database: Database, task_id: str) -> None:
    dispatch(database, task_id)
    lease = leased(database, ttl_s=0.0)
    with database.begin() as uow:
        (found,) = uow.attempts.expired(10, LONG, LONG)
        assert found.command == {"message_id": "msg_1"}
        uow.attempts.lose(found)
        uow.attempts.dispatch(task_id, 1, "execute", 2, "msg_2", '{"message_id": "msg_2"}')
    assert not renew(database, lease)
    assert not answer(database, lease)
    assert claim(database) == Gone("lost")
    second = leased(database, "you", "msg_2")
    assert answer(database, second)


def test_a_released_lease_is_free_at_once_and_its_old_holder_is_fenced(database: Database, task_id: str) -> None:
    dispatch(database, task_id)
    mine = leased(database)
    with database.begin() as uow:
        assert uow.attempts.release(mine) == {"message_id": "msg_1"}
    yours = leased(database, "you")
    assert yours.generation == 2
    assert not renew(database, mine)
    assert not answer(database, mine)
    assert answer(database, yours)


def test_the_same_owner_with_an_older_generation_is_fenced(database: Database, task_id: str) -> None:
    dispatch(database, task_id)
    first = leased(database)
    with database.begin() as uow:
        uow.attempts.release(first)
    second = leased(database)
    assert not answer(database, first)
    assert answer(database, second)


def test_settling_closes_the_phase_and_drops_what_it_carried(database: Database, task_id: str) -> None:
    dispatch(database, task_id)
    answer(database, leased(database))
    dispatch(database, task_id, "msg_2", attempt=2)
    dispatch(database, task_id, "msg_3", step=2)
    with database.begin() as uow:
        uow.attempts.settle(task_id, 1, "execute")
    assert claim(database) == Gone("settled")
    assert claim(database, message_id="msg_2") == Gone("lost")
    assert isinstance(claim(database, message_id="msg_3"), Lease)
    with database.begin() as uow:
        kept = uow._transaction.values(
            "SELECT message_id FROM attempts WHERE command IS NOT NULL OR answer IS NOT NULL"
        )
        assert kept == ["msg_3"]


def test_abandoning_a_task_reaches_its_workers_at_their_next_heartbeat(database: Database, task_id: str) -> None:
    other = insert(database, status="running")
    dispatch(database, task_id)
    dispatch(database, other, "msg_2")
    mine, others = leased(database), leased(database, message_id="msg_2")
    with database.begin() as uow:
        uow.attempts.abandon(task_id)
    assert not renew(database, mine)
    assert not answer(database, mine)
    assert renew(database, others)


def test_the_reaper_sees_what_was_never_claimed_and_what_was_never_settled(database: Database, task_id: str) -> None:
    dispatch(database, task_id, "unclaimed", step=1)
    dispatch(database, task_id, "unsettled", step=2)
    answer(database, leased(database, message_id="unsettled"))
    assert overdue(database) == []
    assert [each.message_id for each in overdue(database, unclaimed_grace_s=0)] == ["unclaimed"]
    (unsettled,) = overdue(database, unsettled_grace_s=0)
    assert (unsettled.status, unsettled.answer, unsettled.owner) == ("answered", {"text": "done"}, "me")


def test_what_was_published_again_gets_its_grace_afresh(database: Database, task_id: str) -> None:
    dispatch(database, task_id)
    with database.begin() as uow:
        uow._transaction.later("UPDATE attempts SET dispatched_at = now() - interval '1 hour'")
    with database.begin() as uow:
        (found,) = uow.attempts.expired(10, 60.0, 60.0)
        uow.attempts.touch(found)
    assert overdue(database, unclaimed_grace_s=60.0) == []


def test_two_reapers_never_see_the_same_attempt(database: Database, task_id: str) -> None:
    for step in range(1, 5):
        dispatch(database, task_id, f"msg_{step}", step=step)
    with database.begin() as first, database.begin() as second:
        mine = first.attempts.expired(2, 0.0, LONG)
        yours = second.attempts.expired(10, 0.0, LONG)
        assert len(mine) == len(yours) == 2
        assert not {a.message_id for a in mine} & {a.message_id for a in yours}


def test_the_leases_of_a_dead_process_expire_at_once(database: Database, task_id: str) -> None:
    for step, owner in ((1, "dead"), (2, "dead"), (3, "alive")):
        dispatch(database, task_id, f"msg_{step}", step=step)
        leased(database, owner, f"msg_{step}")
    with database.begin() as uow:
        assert uow.attempts.forfeit("dead") == 2
    assert sorted(each.message_id for each in overdue(database)) == ["msg_1", "msg_2"]


def test_the_latest_attempt_has_a_number(database: Database, task_id: str) -> None:
    with database.begin() as uow:
        assert uow.attempts.last(task_id, 1, "execute") == 0
    dispatch(database, task_id)
    dispatch(database, task_id, "msg_2", attempt=2)
    with database.begin() as uow:
        assert uow.attempts.last(task_id, 1, "execute") == 2
        assert uow.attempts.last(task_id, 1, "generate") == 0
