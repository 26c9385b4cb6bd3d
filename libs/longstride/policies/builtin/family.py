"""The built-in task family: one question about one column of a CSV table, with the troubles that tables come with."""

import csv
import io
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from longstride.agent.checks import judge_answer
from longstride.contracts.v1.check import AnswerCheck
from longstride.contracts.v1.commands import SubmitTask
from longstride.contracts.v1.input_file import InputFile

Kind = Literal["total", "average", "maximum", "minimum", "count", "last"]
Trouble = Literal["none", "moved", "semicolons", "both"]
"""``moved``: the file lies in a directory that the instruction does not name. ``semicolons``: the fields are separated by ``;``."""
KINDS: tuple[Kind, ...] = get_args(Kind)
TROUBLES: tuple[Trouble, ...] = get_args(Trouble)
TROUBLE_WEIGHTS = (4, 3, 3, 2)
TOLERANCE = 0.006
"""Answers are rounded to two decimals."""

PHRASINGS: dict[Kind, tuple[str, ...]] = {
    "total": (
        "What is the total of {column} in {file}?",
        "Add up {column} in {file}.",
        "Give me the sum of {column} from {file}.",
        "Compute the total {column} over all rows of {file}.",
        "The file {file} has a column {column}. What do its values sum to?",
        "How much is {column} in {file} altogether?",
    ),
    "average": (
        "What is the average of {column} in {file}?",
        "Compute the mean {column} in {file}.",
        "Find the average {column} from {file}.",
        "The file {file} has a column {column}. What is its mean value?",
        "On average, how large is {column} in {file}?",
    ),
    "maximum": (
        "What is the maximum of {column} in {file}?",
        "Find the highest {column} in {file}.",
        "What is the largest value of {column} in {file}?",
        "The file {file} has a column {column}. What is its greatest value?",
        "Give me the biggest {column} from {file}.",
    ),
    "minimum": (
        "What is the minimum of {column} in {file}?",
        "Find the lowest {column} in {file}.",
        "What is the smallest value of {column} in {file}?",
        "The file {file} has a column {column}. What is its least value?",
        "Give me the smallest {column} from {file}.",
    ),
    "count": (
        "How many rows does {file} have?",
        "Count the rows of {file}.",
        "How many values of {column} are there in {file}?",
        "Tell me the number of rows in {file}.",
        "What is the number of entries in {file}?",
    ),
    "last": (
        "What is the last {column} in {file}?",
        "Give me the latest {column} from {file}.",
        "Which value of {column} stands in the last row of {file}?",
        "Read the final value of {column} in {file}.",
        "The file {file} has a column {column}. What is its last value?",
    ),
}
ENDINGS = ("", "", "", " Submit the number.", " Round to two decimals.", " Answer with the value alone.")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


MEASURES = _words(
    "amount price quantity discount cost tax weight rating stock margin revenue temperature humidity "
    "pressure voltage current power speed level flow noise battery distance depth height volume width "
    "load energy rainfall"
)
QUALIFIERS = _words("unit net gross shipping wind water air room inlet outlet pump list refund daily peak")
LABELS = _words("id date day hour product customer region status sensor station city name note item")
SUBJECTS = _words(
    "orders sales products returns invoices customers readings sensors weather greenhouse boiler tanks "
    "deliveries meters stations inventory payments motors visits suppliers"
)
SUFFIXES = _words("north south east west jan feb march april june july new old raw clean week month copy")
DIRECTORIES = _words("data shop archive exports tables logs input reports backup files plant office")
PLACES = _words("Bern Oslo Lima Cairo Quito Riga Turin Perth open closed sent paid lamp chair table desk shelf mug")
WORDS = tuple(sorted({*MEASURES, *QUALIFIERS, *SUBJECTS, *SUFFIXES, *DIRECTORIES, *PLACES}))


@dataclass(frozen=True)
class FamilyTask:
    """A question, the files it is asked of, and its answer."""

    kind: Kind
    trouble: Trouble
    instruction: str
    column: str
    named: str
    """The path as the instruction gives it."""
    path: str
    """Where the file lies."""
    delimiter: str
    files: dict[str, str]
    """Path to text, of the table and of others beside it."""
    answer: str
    """What the reference program prints."""

    def check(self) -> AnswerCheck:
        """What the submitted answer must be: a number within the rounding, or exactly a text."""
        try:
            return AnswerCheck(number=float(self.answer), tolerance=TOLERANCE)
        except ValueError:
            return AnswerCheck(equals=self.answer)

    def accepts(self, answer: str) -> bool:
        """Whether the check would pass."""
        return judge_answer(self.check(), answer).passed

    def submit(self, **fields: object) -> SubmitTask:
        """The task as a client would publish it."""
        inputs = [InputFile(path=path, text=text) for path, text in sorted(self.files.items())]
        body = {"instruction": self.instruction, "inputs": inputs, "checks": [self.check()], **fields}
        return SubmitTask.model_validate(body)


def sample(rng: random.Random) -> FamilyTask:
    """A task drawn at random; equal generators give equal tasks."""
    return make(rng, rng.choice(KINDS), rng.choices(TROUBLES, TROUBLE_WEIGHTS)[0])


def make(rng: random.Random, kind: Kind, trouble: Trouble) -> FamilyTask:
    """A task of one kind, with one trouble."""
    columns = _columns(rng)
    file, directory = _file_name(rng), _directory(rng)
    path = f"{directory}/{file}" if trouble in ("moved", "both") or rng.random() < 0.2 else file
    delimiter = ";" if trouble in ("semicolons", "both") else ","
    rows = _rows(rng, columns)
    numeric = [name for name in columns if name not in LABELS]
    column = rng.choice(columns if kind == "last" and rng.random() < 0.3 else numeric)
    named = file if trouble in ("moved", "both") else path
    return FamilyTask(
        kind=kind,
        trouble=trouble,
        instruction=rng.choice(PHRASINGS[kind]).format(column=column, file=named) + rng.choice(ENDINGS),
        column=column,
        named=named,
        path=path,
        delimiter=delimiter,
        files={path: write_table(columns, rows, delimiter), **_neighbours(rng, path)},
        answer=ANSWERS[kind]([row[columns.index(column)] for row in rows]),
    )


def write_table(columns: Sequence[str], rows: Sequence[Sequence[str]], delimiter: str = ",") -> str:
    """A header and rows as CSV text with ``\\n`` line ends."""
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows([columns, *rows])
    return out.getvalue()


def _rounded(reduce: Callable[[list[float]], float]) -> Callable[[list[str]], str]:
    return lambda values: str(round(reduce([float(value) for value in values]), 2))


ANSWERS: dict[Kind, Callable[[list[str]], str]] = {
    "total": _rounded(sum),
    "average": _rounded(lambda values: sum(values) / len(values)),
    "maximum": _rounded(max),
    "minimum": _rounded(min),
    "count": lambda values: str(len(values)),
    "last": lambda values: values[-1],
}


def _columns(rng: random.Random) -> list[str]:
    measures = {_column_name(rng) for _ in range(rng.randint(1, 3))} - set(LABELS)
    columns = [*rng.sample(LABELS, rng.randint(1, 3)), *sorted(measures)]
    rng.shuffle(columns)
    return columns if measures else [*columns, rng.choice(MEASURES)]


def _column_name(rng: random.Random) -> str:
    measure = _word(rng, MEASURES)
    return f"{_word(rng, QUALIFIERS)}_{measure}" if rng.random() < 0.35 else measure


def _file_name(rng: random.Random) -> str:
    stem, shape = _word(rng, SUBJECTS), rng.random()
    if shape < 0.25:
        stem = f"{stem}_{_word(rng, SUFFIXES)}"
    elif shape < 0.45:
        stem = f"{stem}_{rng.choice([rng.randint(1, 12), rng.randint(2015, 2029)])}"
    return f"{stem}.csv"


def _directory(rng: random.Random) -> str:
    first = _word(rng, DIRECTORIES)
    if rng.random() < 0.6:
        return first
    return f"{first}/{rng.randint(2015, 2029) if rng.random() < 0.3 else _word(rng, SUFFIXES)}"


def _word(rng: random.Random, usual: Sequence[str]) -> str:
    """A usual word in most places; any other word, or one that nobody has seen, in the rest.

    Were each word at home in one place, the policy would guess it from there instead of copying it.
    """
    shape = rng.random()
    if shape < 0.5:
        return rng.choice(usual)
    return rng.choice(WORDS) if shape < 0.75 else _invented(rng)


def _invented(rng: random.Random) -> str:
    """A name that no vocabulary holds, so that it must be copied letter by letter."""
    syllables = [rng.choice("bcdfghjklmnprstvwz") + rng.choice("aeiou") for _ in range(rng.randint(2, 3))]
    name = "".join(syllables) + rng.choice(["", "", "n", "r", "x", "2", "7"])
    return name if rng.random() < 0.8 else f"{name}_{rng.randint(1, 9)}"


def _rows(rng: random.Random, columns: Sequence[str]) -> list[list[str]]:
    makers = [_labels(rng, name) if name in LABELS else _numbers(rng) for name in columns]
    return [[make() for make in makers] for _ in range(rng.randint(3, 25))]


def _labels(rng: random.Random, name: str) -> Callable[[], str]:
    if name in ("id", "hour"):
        return lambda: str(rng.randint(1, 400))
    if name in ("date", "day"):
        return lambda: f"{rng.randint(2019, 2027)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    return lambda: rng.choice(PLACES)


def _numbers(rng: random.Random) -> Callable[[], str]:
    decimals, top = rng.choice([0, 1, 2, 2]), rng.choice([9, 60, 300, 5000])
    low = -top if rng.random() < 0.15 else 0
    return lambda: f"{rng.uniform(low, top):.{decimals}f}"


def _neighbours(rng: random.Random, path: str) -> dict[str, str]:
    """Up to two other tables; none has the same file name."""
    others: dict[str, str] = {}
    for _ in range(rng.randint(0, 2)):
        name = _file_name(rng)
        if name not in path:
            others[name] = write_table(["id", "note"], [["1", rng.choice(PLACES)]])
    return others
