"""What the audit costs: transactions that append one event to a task, without an entry and with one.

One tenant is the worst case, as all its commits queue behind the head of one chain; with a tenant a thread nobody waits.
The variants take turns, so that what else the machine does hits all of them.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median, quantiles

from longstride.contracts.v1.limits import SandboxLimits
from longstride.storage import migrations
from longstride.storage.database import Database
from tests.benchmarks.table import Row, Table
from tests.support import servers as under_test
from tests.support import tasks
from tests.support.servers import Servers

TRANSACTIONS = 100
"""A thread and round."""
ROUNDS = 4
THREADS = (1, 8)
ENTRY = {
    "kind": "action",
    "task_id": "task_0",
    "tool": "shell",
    "arguments_sha256": "0" * 64,
    "limits": SandboxLimits().model_dump(mode="json"),
    "result": {"status": "ok", "exit_code": 0, "output_sha256": "0" * 64, "event": 5},
}
VARIANTS: dict[str, Callable[[int], str | None]] = {
    "no entry": lambda thread: None,
    "an entry, one tenant": lambda thread: "one",
    "an entry, a tenant each": lambda thread: f"tenant_{thread}",
}


def run(rounds: int = ROUNDS, transactions: int = TRANSACTIONS) -> Table:
    """Measure, and say so in a table."""
    with _database() as database:
        rows = [row for threads in THREADS for row in _rows(database, threads, rounds, transactions)]
    head = ("threads", "transaction", "p50 ms", "p99 ms", "a second")
    return Table("The audit in a task's transaction", head, rows)


def _rows(database: Database, threads: int, rounds: int, transactions: int) -> Iterator[Row]:
    times: dict[str, list[float]] = {name: [] for name in VARIANTS}
    rates: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(rounds):
        for name, tenant_of in VARIANTS.items():
            begun = time.perf_counter()
            with ThreadPoolExecutor(threads) as pool:
                laps = pool.map(lambda n, of=tenant_of: _lap(database, of(n), transactions), range(threads))
                times[name] += [took for lap in laps for took in lap]
            rates[name].append(threads * transactions / (time.perf_counter() - begun))
    for name, took in times.items():
        yield (
            str(threads),
            name,
            f"{median(took):.2f}",
            f"{quantiles(took, n=100)[98]:.2f}",
            f"{median(rates[name]):.0f}",
        )


def _lap(database: Database, tenant: str | None, transactions: int) -> list[float]:
    task_id = tasks.insert(database)
    took = []
    for seq in range(transactions):
        begun = time.perf_counter()
        with database.begin() as uow:
            uow.tasks.head(task_id)
            uow.events.append(task_id, seq, [("counted", {"n": seq})])
            if tenant is not None:
                uow.audit.append(tenant, ENTRY)
        took.append((time.perf_counter() - begun) * 1000)
    return took


@contextmanager
def _database() -> Iterator[Database]:
    with under_test.database(Servers.from_environment()) as url:
        migrations.upgrade(url)
        database = Database(url, pool_size=max(THREADS))
        try:
            yield database
        finally:
            database.close()
