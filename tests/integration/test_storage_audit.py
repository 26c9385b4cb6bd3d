"""The audit's chain: what a stranger can check, every kind of tampering, retention, holds."""

import hashlib
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from longstride.storage.audit import Verdict
from longstride.storage.database import Database

LONG_AGO = datetime.now(UTC) - timedelta(days=400)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


def append(database: Database, *entries: dict[str, Any], tenant: str = "a", at: datetime | None = None) -> None:
    with database.begin() as uow:
        for entry in entries:
            uow.audit.append(tenant, entry, at)


def verdict(database: Database, noted: dict[int, str] | None = None) -> Verdict:
    with database.begin() as uow:
        return uow.audit.verify("a", noted)


def tamper(database_url: str, statements: str) -> None:
    with psycopg.connect(database_url) as connection:
        for statement in statements.split(";"):
            connection.execute(statement)  # type: ignore[arg-type]


def test_the_chain_can_be_followed_by_a_stranger(database: Database) -> None:
    entry = {
        "who": "ada",
        "did": "approve",
        "n": 1e22,
        "f": 0.1,
        "text": "ä\x00\ud800",
        "nested": {"b": [1], "a": None},
    }
    append(database, entry, {"second": True})
    append(database, {"other": "tenant"}, tenant='b "ü"')
    with database.begin() as uow:
        for tenant in ("a", 'b "ü"'):
            previous = "0" * 64
            for seq, row in enumerate(uow.audit.read(tenant), 1):
                moment = row.occurred_at.astimezone(UTC).isoformat(timespec="microseconds")
                content = json.dumps([previous, tenant, seq, moment, row.entry], sort_keys=True, separators=(",", ":"))
                assert (row.seq, row.previous) == (seq, previous)
                assert row.sha256 == hashlib.sha256(content.encode()).hexdigest()
                previous = row.sha256
        assert uow.audit.read("a")[0].entry == {**entry, "text": "ä��"}
        assert uow.audit.tenants() == ["a", 'b "ü"']
        assert [uow.audit.verify(tenant).broken for tenant in ("a", 'b "ü"', "nobody")] == [None, None, None]
        assert (uow.audit.verify("a").rows, uow.audit.verify("a").head) == (2, uow.audit.head("a"))


@pytest.mark.parametrize(
    ("tampering", "seq", "problem"),
    [
        ("UPDATE audit SET entry = '{\"n\": 9}' WHERE seq = 2", 2, "it was changed"),
        ("UPDATE audit SET entry = (entry::text || ' ')::json WHERE seq = 2", 2, "it was changed"),
        ("UPDATE audit SET occurred_at = occurred_at + interval '1 second' WHERE seq = 3", 3, "it was changed"),
        ("UPDATE audit SET occurred_at = 'infinity' WHERE seq = 3", 3, "it was changed"),
        ("UPDATE audit SET occurred_at = '0044-03-15 BC' WHERE seq = 2", 2, "it was changed"),
        ("UPDATE audit SET sha256 = repeat('0', 64) WHERE seq = 2", 2, "it was changed"),
        ("UPDATE audit SET tenant = 'b' WHERE seq = 2", 2, "entry 2 is missing, the next one is 3"),
        ("DELETE FROM audit WHERE seq = 2", 2, "entry 2 is missing"),
        ("DELETE FROM audit WHERE seq = 1", 1, "entry 1 is missing"),
        ("DELETE FROM audit WHERE seq = 2; UPDATE audit SET seq = seq - 1 WHERE seq > 2", 2, "does not follow"),
        ("UPDATE audit SET seq = -seq; UPDATE audit SET seq = 5 + seq", 1, "does not follow"),
        ("DELETE FROM audit WHERE seq = 4", 4, "the end is cut off: entry 4 is missing"),
        ("DELETE FROM audit WHERE seq > 2", 3, "the end is cut off: entries 3 to 4 are missing"),
        ("DELETE FROM audit", 1, "the end is cut off: entries 1 to 4 are missing"),
        ("DELETE FROM audit_heads", 4, "beyond the end"),
        ("UPDATE audit_heads SET seq = 3, sha256 = previous", 4, "beyond the end"),
        ("UPDATE audit_heads SET sha256 = repeat('0', 64)", 4, "another entry than was noted"),
        (
            "INSERT INTO audit SELECT tenant, 5, entry, sha256, repeat('0', 64), occurred_at FROM audit WHERE seq = 4",
            5,
            "it was changed",
        ),
    ],
)
def test_tampering_shows(database: Database, database_url: str, tampering: str, seq: int, problem: str) -> None:
    append(database, *({"n": number} for number in range(1, 5)))
    tamper(database_url, tampering)
    broken = verdict(database).broken
    assert broken is not None
    assert (broken.seq, problem in broken.problem) == (seq, True), broken


def test_an_end_that_was_cut_off_everywhere_shows_against_an_export(database: Database, database_url: str) -> None:
    append(database, {"n": 1}, {"n": 2}, {"n": 3})
    with database.begin() as uow:
        noted = {row.seq: row.sha256 for row in uow.audit.read("a")}
    assert verdict(database, noted).broken is None
    tamper(
        database_url,
        "DELETE FROM audit WHERE seq = 3;"
        "UPDATE audit_heads h SET (seq, previous, sha256) = (SELECT seq, previous, sha256 FROM audit WHERE seq = 2)",
    )
    assert verdict(database).broken is None
    cut = verdict(database, noted).broken
    assert cut is not None
    assert (cut.seq, cut.problem) == (3, "the end is cut off: entry 3 is missing")
    append(database, {"n": "another third"})
    anew = verdict(database, noted).broken
    assert anew is not None
    assert (anew.seq, "written anew" in anew.problem) == (3, True)


def test_a_chain_that_was_wiped_out_shows_against_an_export(database: Database, database_url: str) -> None:
    append(database, {"n": 1}, {"n": 2})
    with database.begin() as uow:
        noted = {row.seq: row.sha256 for row in uow.audit.read("a")}
    tamper(database_url, "DELETE FROM audit; DELETE FROM audit_heads")
    assert verdict(database).broken is None
    gone = verdict(database, noted).broken
    assert gone is not None
    assert gone.problem == "the end is cut off: entries 1 to 2 are missing"


def test_appends_at_once_make_one_chain(database: Database) -> None:
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda number: append(database, {"n": number}, {"n": number + 0.5}), range(24)))
    with database.begin() as uow:
        assert uow.audit.verify("a").broken is None
        found = [row.entry["n"] for row in uow.audit.read("a")]
    assert sorted(found) == sorted([*range(24), *(n + 0.5 for n in range(24))])
    assert all(found[i] + 0.5 == found[i + 1] for i in range(0, 48, 2))


def test_transactions_of_many_tenants_in_any_order_do_not_wait_in_a_ring(database: Database) -> None:
    def both(number: int) -> None:
        with database.begin() as uow:
            for tenant in ("a", "b") if number % 2 else ("b", "a"):
                uow.audit.append(tenant, {"n": number})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(both, range(40)))
    with database.begin() as uow:
        assert [(v.rows, v.broken) for v in map(uow.audit.verify, ("a", "b"))] == [(40, None), (40, None)]


def test_an_append_locks_the_chain_for_the_commit_alone(database: Database) -> None:
    """Another of the tenant's transactions appends and commits while this one has appended and works on."""
    with database.begin() as uow:
        uow.audit.append("a", {"n": "slow"})
        other = threading.Thread(target=append, args=(database, {"n": "quick"}))
        other.start()
        other.join(10)
        assert not other.is_alive()
    with database.begin() as uow:
        assert [row.entry["n"] for row in uow.audit.read("a")] == ["quick", "slow"]


def append_and_fail(database: Database) -> None:
    with database.begin() as uow:
        uow.audit.append("a", {"n": 1})
        uow.rewards.add("task_nowhere", 1.0, [], "checks")


def test_what_is_rolled_back_leaves_no_trace(database: Database) -> None:
    with pytest.raises(ValueError, match="task_nowhere"):
        append_and_fail(database)
    append(database, {"n": 2})
    assert (verdict(database).rows, verdict(database).broken) == (1, None)


# Retention and holds


def kinds(database: Database) -> list[Any]:
    with database.begin() as uow:
        return [row.entry.get("kind") or row.entry["n"] for row in uow.audit.read("a")]


def sweep(database: Database, now: datetime | None = None, limit: int = 10_000) -> int:
    with database.begin() as uow:
        return uow.audit.sweep("a", limit, now)


def keep(database: Database, days: int | None) -> None:
    with database.begin() as uow:
        uow.audit.retain("a", days, "ada")


def test_without_retention_everything_stays(database: Database) -> None:
    append(database, {"n": 1}, at=LONG_AGO)
    assert sweep(database) == 0
    keep(database, 30)
    keep(database, None)
    assert sweep(database) == 0


def test_old_rows_go_and_the_rest_stays_verifiable(database: Database, database_url: str) -> None:
    append(database, *({"n": number} for number in range(1, 6)), at=LONG_AGO)
    append(database, {"n": 6})
    keep(database, 30)
    assert [sweep(database, limit=3), sweep(database, limit=3), sweep(database)] == [3, 2, 0]
    assert kinds(database) == [6, "retention_set", "rows_removed", "rows_removed"]
    found = verdict(database)
    assert (found.broken, found.rows) == (None, 4)
    assert [gap[:2] for gap in found.removed] == [(1, 5)]
    tamper(database_url, "DELETE FROM audit WHERE seq = 6")
    broken = verdict(database).broken
    assert broken is not None
    assert (broken.seq, broken.problem) == (6, "entry 6 is missing, the next one is 7")


def test_a_checkpoint_that_claims_more_than_was_removed_shows(database: Database, database_url: str) -> None:
    append(database, {"n": 1}, {"n": 2}, at=LONG_AGO)
    append(database, {"n": 3})
    keep(database, 30)
    sweep(database)
    tamper(
        database_url,
        "DELETE FROM audit WHERE seq = 3;"
        "UPDATE audit SET entry = replace(entry::text, '[1,2,', '[1,3,')::json WHERE entry->>'kind' = 'rows_removed'",
    )
    assert verdict(database).broken is not None


@pytest.mark.parametrize("removed", ['{"a":1}', "[[1,2]]", '["x"]', '[[1,"2","3"]]', "null", "7", '[[1.5,2,"x"]]'])
def test_a_checkpoint_that_somebody_garbled_excuses_nothing(
    database: Database, database_url: str, removed: str
) -> None:
    append(database, *({"n": n} for n in range(4)))
    forged = f'{{"kind":"rows_removed","removed":{removed}}}'
    tamper(database_url, f"UPDATE audit SET entry = '{forged}' WHERE seq = 4; DELETE FROM audit WHERE seq = 2")
    broken = verdict(database).broken
    assert broken is not None
    assert broken.seq == 2


def test_checkpoints_of_long_ago_are_swept_with_the_next_rows_and_never_alone(database: Database) -> None:
    append(database, {"n": 1}, at=LONG_AGO)
    keep(database, 30)
    assert sweep(database) == 1
    later = datetime.now(UTC) + timedelta(days=100)
    assert sweep(database, later) == 1
    assert kinds(database) == ["rows_removed", "rows_removed"]
    assert sweep(database, later) == 0
    append(database, {"n": 2})
    assert sweep(database, later) == 2
    assert (kinds(database), verdict(database).broken) == (["rows_removed", "rows_removed"], None)


def test_a_hold_on_a_task_keeps_its_rows_and_lets_the_others_go(database: Database) -> None:
    append(database, *({"n": n, "task_id": f"task_{n % 2}"} for n in range(1, 6)), at=LONG_AGO)
    keep(database, 30)
    with database.begin() as uow:
        hold = uow.audit.hold("a", "task_1", "case 7", "ada")
    assert sweep(database) == 2
    assert kinds(database)[:3] == [1, 3, 5]
    assert [gap[:2] for gap in verdict(database).removed] == [(2, 2), (4, 4)]
    assert verdict(database).broken is None
    with database.begin() as uow:
        assert [h.id for h in uow.audit.holds("a")] == [hold.id]
        released = uow.audit.release(hold.id, "bob")
        assert released is not None
        assert (released.released_by, uow.audit.release(hold.id, "bob"), uow.audit.holds("a")) == ("bob", None, [])
        assert [h.reason for h in uow.audit.holds(released=True)] == ["case 7"]
    assert sweep(database) == 3
    assert ([gap[:2] for gap in verdict(database).removed], verdict(database).broken) == ([(1, 5)], None)
    assert kinds(database) == ["retention_set", "hold_placed", "rows_removed", "hold_released", "rows_removed"]


def test_a_hold_on_a_tenant_stops_every_removal(database: Database) -> None:
    append(database, {"n": 1}, {"n": 2, "task_id": "task_1"}, at=LONG_AGO)
    keep(database, 30)
    with database.begin() as uow:
        uow.audit.hold("a", None, "case 8", "ada")
        uow.audit.hold("b", None, "another's", "ada")
    assert sweep(database) == 0
    assert kinds(database) == [1, 2, "retention_set", "hold_placed"]


def test_an_export_may_tell_of_rows_that_retention_has_removed(database: Database) -> None:
    append(database, {"n": 1}, {"n": 2}, at=LONG_AGO)
    append(database, {"n": 3})
    with database.begin() as uow:
        noted = {row.seq: row.sha256 for row in uow.audit.read("a")}
    keep(database, 30)
    sweep(database)
    assert verdict(database, noted).broken is None
    broken = verdict(database, {**noted, 2: "0" * 64}).broken
    assert broken is not None
    assert (broken.seq, "ended otherwise than was noted" in broken.problem) == (3, True)
