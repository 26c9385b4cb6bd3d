"""What a process holds in memory of a server that forgot the last moments before its crash."""

from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from infra.native import Stack
from longstride.storage.database import Database
from longstride.storage.id_block import SIZE


@pytest.fixture
def processes(database_url: str) -> Iterator[list[Database]]:
    """The connections of two processes."""
    with ExitStack() as running:
        made = [Database(database_url) for _ in range(2)]
        for database in made:
            running.callback(database.close)
        yield made


@pytest.mark.parametrize("rolled_back", [True, False])
def test_no_outbox_id_is_used_twice(processes: list[Database], stack: Stack, rolled_back: bool) -> None:
    """No commit that waited for the disk had followed the draw: the server may give the same ids out again."""
    with suppress(ZeroDivisionError), processes[0].begin(durable=False) as uow:
        uow.outbox.add("{}", "forgotten", "exchange", "nowhere")
        if rolled_back:
            raise ZeroDivisionError
    stack.restart("postgres", kill=True)
    ids = [_promise(database) for _ in range(2 * SIZE) for database in processes]
    assert len(set(ids)) == len(ids)


def _promise(database: Database) -> int:
    with database.begin() as uow:
        return uow.outbox.add("{}", "a message", "exchange", "nowhere")
