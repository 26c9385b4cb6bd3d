"""The schema's history: it leads to the tables, can be walked both ways, and by many services at once."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from longstride.storage import migrations
from longstride.storage.database import Database
from longstride.storage.errors import DatabaseUnavailable, SchemaMismatch
from longstride.storage.tables import Base

CATALOG = """
    SELECT 'column', c.relname || '.' || a.attname,
           concat_ws(' ', format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, pg_get_expr(d.adbin, d.adrelid))
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (c.oid, a.attnum)
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND contype <> 'n'
    UNION ALL
    SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
    UNION ALL
    SELECT 'options', relname, reloptions::text FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND reloptions IS NOT NULL
    ORDER BY 1, 2"""


def schema(url: str) -> set[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return {row for row in connection.execute(CATALOG) if "alembic_version" not in row[1]}


def test_autogenerate_finds_nothing_to_do(empty_database_url: str) -> None:
    migrations.upgrade(empty_database_url)
    assert migrations.check(empty_database_url) == []


def test_check_sees_a_difference(empty_database_url: str) -> None:
    migrations.upgrade(empty_database_url)
    with psycopg.connect(empty_database_url) as connection:
        connection.execute("ALTER TABLE tasks DROP COLUMN answer")
    assert "answer" in str(migrations.check(empty_database_url))


def test_the_migrated_schema_is_the_one_that_the_tables_declare(empty_database_url: str) -> None:
    """Down to check constraints, partial indexes and storage options, which autogenerate does not compare."""
    migrations.upgrade(empty_database_url)
    migrated = schema(empty_database_url)
    migrations.downgrade(empty_database_url)
    assert schema(empty_database_url) == set()
    database = Database(empty_database_url)
    Base.metadata.create_all(database.engine)
    database.close()
    assert migrated == schema(empty_database_url)


def test_up_down_and_up_again(empty_database_url: str) -> None:
    migrations.upgrade(empty_database_url)
    first = schema(empty_database_url)
    migrations.downgrade(empty_database_url)
    migrations.upgrade(empty_database_url)
    assert schema(empty_database_url) == first


def test_an_upgrade_of_a_current_schema_changes_nothing(database_url: str) -> None:
    before = schema(database_url)
    migrations.upgrade(database_url)
    assert schema(database_url) == before


def test_many_services_may_upgrade_at_once(empty_database_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(migrations.upgrade, [empty_database_url] * 4))
    assert migrations.check(empty_database_url) == []


def require_current(url: str) -> None:
    database = Database(url)
    try:
        migrations.require_current(database)
    finally:
        database.close()


def test_a_current_schema_is_accepted(database_url: str) -> None:
    require_current(database_url)


def test_a_missing_schema_is_refused_with_what_to_do(empty_database_url: str) -> None:
    with pytest.raises(SchemaMismatch, match=r"no Longstride schema; run the migrations first \(python -m"):
        require_current(empty_database_url)


def test_a_schema_of_a_newer_build_is_refused(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    for act in (require_current, migrations.upgrade):
        with pytest.raises(SchemaMismatch, match=r"revision 9999, which this build does not know"):
            act(database_url)


def test_a_server_that_is_too_old_is_refused(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "OLDEST_POSTGRESQL", 99)
    for act in (require_current, migrations.upgrade):
        with pytest.raises(SchemaMismatch, match=r"PostgreSQL 99 or newer is needed; this is 1\d"):
            act(database_url)


def test_no_server_is_said_so() -> None:
    nobody = "postgresql://postgres@127.0.0.1:1/postgres"
    for act in (require_current, migrations.upgrade):
        with pytest.raises(DatabaseUnavailable, match="PostgreSQL cannot be reached"):
            act(nobody)


def test_queries_on_an_unmigrated_database_say_what_to_do(empty_database_url: str) -> None:
    database = Database(empty_database_url)
    why = "no service of this version has started on this database yet.*; or run the migrations"
    with pytest.raises(SchemaMismatch, match=why), database.begin() as uow:
        uow.tasks.head("task_1")
    database.close()


def test_queries_on_another_versions_database_say_so(database_url: str) -> None:
    migrations.downgrade(database_url, "0003")
    database = Database(database_url)
    why = "earlier_askers.*made by another version of Longstride; run the migrations"
    with pytest.raises(SchemaMismatch, match=why), database.begin() as uow:
        uow.tasks.head("task_1")
    database.close()


def test_the_command_line_upgrades_checks_and_downgrades(empty_database_url: str) -> None:
    def run(action: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "longstride.storage.migrations", action, "--database-url", empty_database_url]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert run("check").returncode == 1
    assert run("upgrade").returncode == 0
    assert (run("check").returncode, run("check").stdout) == (0, "")
    assert run("downgrade").returncode == 0
    assert schema(empty_database_url) == set()
