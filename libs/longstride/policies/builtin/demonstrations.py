"""Worked examples for the supervised steps: an expert that knows the task, and mistakes that it makes on purpose."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from longstride.contracts.v1.action import Action, Observation
from longstride.policies.builtin.family import FamilyTask, Kind, sample
from longstride.policies.builtin.simulator import NotSimulated, Simulator

EXPRESSIONS: dict[Kind, str] = {
    "total": "round(sum(values), 2)",
    "average": "round(sum(values) / len(values), 2)",
    "maximum": "max(values)",
    "minimum": "min(values)",
    "count": "len(rows)",
    "last": "rows[-1]['{column}']",
}
MOST_TURNS = 6


@dataclass(frozen=True)
class Demonstration:
    """An episode: each action and what came of it; the last is ``submit`` unless the expert gave up."""

    task: FamilyTask
    exchanges: tuple[tuple[Action, Observation | None], ...]

    @property
    def right(self) -> bool:
        """Whether it ends with the right answer."""
        action = self.exchanges[-1][0]
        return action.tool == "submit" and self.task.accepts(str(action.arguments["answer"]))


class Expert:
    """Solves a task by its observations, as the policy must; ``slip`` is the chance of a mistake at each decision."""

    def __init__(self, task: FamilyTask, rng: random.Random, slip: float = 0.0) -> None:
        self.task, self._rng, self._slip = task, rng, slip
        self._path, self._delimiter = task.named, ","
        self._kind: Kind = task.kind

    def demonstrate(self) -> Demonstration:
        """Play the episode in the simulator."""
        simulator, exchanges = Simulator(self.task.files), list[tuple[Action, Observation | None]]()
        action = self._compute("Read the table", self._first_plan())
        while action.tool != "submit" and len(exchanges) < MOST_TURNS:
            observation = simulator.call(action)
            exchanges.append((action, observation))
            action = self._next(action, observation.text)
        return Demonstration(self.task, (*exchanges, (action, None)))

    def _next(self, action: Action, seen: str) -> Action:
        if self._slips():
            return self._mistake(action, seen)
        if "FileNotFoundError" in seen:
            return self._search()
        if "KeyError" in seen:
            self._delimiter = ";"
            plan = ("read it with ;", "submit it")
            return self._compute("No such column: the fields may be separated by ;", plan)
        if action.tool == "search_files":
            self._path = seen.splitlines()[0]
            return self._compute("Found it", None)
        return _submit(seen.strip())

    def _compute(self, thought: str, plan: tuple[str, ...] | None) -> Action:
        kind = self._rng.choice(list(EXPRESSIONS)) if self._slips() else self._kind
        code = program(kind, self._path, self.task.column, self._delimiter)
        return Action(tool="python", arguments={"code": code}, thought=thought, plan=plan)

    def _search(self) -> Action:
        name = self._path.rpartition("/")[2]
        plan = ("find the file", "compute it again", "submit it")
        thought = "The file is not here: search for it"
        return Action(tool="search_files", arguments={"pattern": name}, thought=thought, plan=plan)

    def _first_plan(self) -> tuple[str, ...]:
        return (f"compute the {self.task.kind}", "submit it")

    def _mistake(self, action: Action, seen: str) -> Action:
        """Give up, do the same again, or copy badly."""
        if action.tool == "python" and "Error" not in seen:
            return _submit(self._miscopied(seen.strip()))
        return action if self._rng.random() < 0.5 else _submit("0")

    def _miscopied(self, answer: str) -> str:
        cut = self._rng.randrange(len(answer)) if answer else 0
        return answer[:cut] + answer[cut + 1 :]

    def _slips(self) -> bool:
        return self._rng.random() < self._slip


def program(kind: Kind, path: str, column: str, delimiter: str = ",") -> str:
    """The reference program of a question."""
    dialect = "" if delimiter == "," else f", delimiter='{delimiter}'"
    lines = ["import csv", f"rows = list(csv.DictReader(open('{path}'){dialect}))"]
    if kind not in ("count", "last"):
        lines.append(f"values = [float(r['{column}']) for r in rows]")
    return "\n".join([*lines, f"print({EXPRESSIONS[kind].format(column=column)})"])


def demonstrations(rng: random.Random, slip: float) -> Iterator[Demonstration]:
    """Episodes of tasks drawn at random, for ever."""
    while True:
        task = sample(rng)
        try:
            yield Expert(task, rng, slip).demonstrate()
        except NotSimulated as error:
            raise AssertionError(f"the expert left the simulator's subset: {error}") from error


def _submit(answer: str) -> Action:
    return Action(tool="submit", arguments={"answer": answer}, thought="That is the answer")
