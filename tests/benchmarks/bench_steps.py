"""Durable steps: the full and the embedded stack beside DBOS and LangGraph.

One agent step is one model call (a scripted policy) and one tool call (``noop``), each recorded durably before the next
begins. All but the embedded stack, which brings its own, use the same PostgreSQL. Contenders take turns, in a new order
each round, so that what else the machine does hits all of them.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from tests.benchmarks.lap import Contender, Result
from tests.benchmarks.ourselves import embedded_stack, full_stack
from tests.benchmarks.peer import peer
from tests.benchmarks.table import Row, Table
from tests.support import servers as under_test
from tests.support.servers import Servers

SIZES = ((50, 1), (200, 1), (50, 8))
"""(steps of a task, tasks at once)"""
ROUNDS = 3
PEERS = {"DBOS": "tests.benchmarks.peer_dbos", "LangGraph": "tests.benchmarks.peer_langgraph"}


def run(rounds: int = ROUNDS, sizes: Sequence[tuple[int, int]] = SIZES, only: Sequence[str] = ()) -> Table:
    """Measure, and say so in a table."""
    with ExitStack() as stack:
        contenders = _contenders(stack, Servers.from_environment(), only)
        results = [result for steps, tasks in sizes for result in measure(contenders, steps, tasks, rounds)]
    head = ("steps x tasks at once", "contender", "p50 ms/step", "p99 ms/step", "steps/s")
    return Table("Durable agent steps (model call + tool call)", head, list(_rows(results)))


def measure(contenders: Sequence[Contender], steps: int, tasks: int, rounds: int) -> list[Result]:
    """Every contender's laps at one size, one lap a round, after a warm-up."""
    for contender in contenders:
        contender.run(10, tasks)
    laps = {contender.name: [] for contender in contenders}
    order = random.Random(0)
    for _ in range(rounds):
        for contender in order.sample(contenders, len(contenders)):
            laps[contender.name].append(contender.run(steps, tasks))
    return [Result(name, steps, tasks, tuple(own)) for name, own in laps.items()]


def _contenders(stack: ExitStack, servers: Servers, only: Sequence[str]) -> list[Contender]:
    makers = {
        "full stack": lambda: full_stack(servers),
        "embedded stack": embedded_stack,
        **{name: (lambda name=name: peer(name, PEERS[name], database())) for name in PEERS},
    }

    def database() -> str:
        return stack.enter_context(under_test.database(servers))

    return [stack.enter_context(make()) for name, make in makers.items() if not only or name in only]


def _rows(results: Sequence[Result]) -> Iterator[Row]:
    for r in results:
        size = f"{r.steps} x {r.tasks}"
        yield size, r.name, f"{r.millis(0.50):.1f}", f"{r.millis(0.99):.1f}", f"{r.rate():.0f}"
