import csv
import io
import random
import statistics
from itertools import islice

import pytest

from longstride.contracts.v1.action import Action
from longstride.contracts.v1.commands import SubmitTask
from longstride.policies.builtin.demonstrations import Expert, demonstrations, program
from longstride.policies.builtin.family import KINDS, TROUBLES, FamilyTask, make, sample
from longstride.policies.builtin.simulator import NotSimulated, Simulator

REFERENCE = {
    "total": lambda values: sum(map(float, values)),
    "average": lambda values: statistics.fmean(map(float, values)),
    "maximum": lambda values: max(map(float, values)),
    "minimum": lambda values: min(map(float, values)),
    "count": len,
    "last": lambda values: values[-1],
}


def drawn(count: int = 150, seed: int = 5) -> list[FamilyTask]:
    rng = random.Random(seed)
    return [sample(rng) for _ in range(count)]


@pytest.mark.parametrize("task", drawn(), ids=lambda task: f"{task.kind}-{task.trouble}")
def test_the_answer_is_what_another_program_computes(task):
    rows = list(csv.DictReader(io.StringIO(task.files[task.path]), delimiter=task.delimiter))
    expected = REFERENCE[task.kind]([row[task.column] for row in rows])
    assert task.accepts(str(expected))
    assert not task.accepts(f"1{expected}")
    assert not task.accepts("")


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_and_trouble_is_what_it_says(kind, trouble):
    for seed in range(10):
        task = make(random.Random(seed), kind, trouble)
        assert (task.kind, task.trouble) == (kind, trouble)
        assert (task.named != task.path) == (trouble in ("moved", "both"))
        assert (task.delimiter == ";") == (trouble in ("semicolons", "both"))
        assert task.named in task.instruction
        assert len([path for path in task.files if path.endswith(task.named.rpartition("/")[2])]) == 1
        assert len(task.files[task.path]) < 4096


def test_equal_generators_give_equal_tasks():
    assert drawn(20, seed=9) == drawn(20, seed=9)
    assert drawn(20, seed=9) != drawn(20, seed=10)


def test_a_task_is_a_submission_with_a_check():
    task = drawn(1)[0]
    body = task.submit(policy="builtin@0", group_id="g")
    assert isinstance(body, SubmitTask)
    assert {file.path: file.text for file in body.inputs} == task.files
    assert body.checks == (task.check(),)
    assert (body.policy, body.group_id) == ("builtin@0", "g")


def test_the_expert_is_always_right_and_needs_its_corrections():
    for task in drawn(200, seed=1):
        demonstration = Expert(task, random.Random(0)).demonstrate()
        failed = sum(o is not None and o.status != "ok" for _, o in demonstration.exchanges)
        assert demonstration.right
        moved, odd = task.trouble in ("moved", "both"), task.trouble in ("semicolons", "both") and task.kind != "count"
        assert failed == moved + odd


def test_an_expert_that_slips_is_often_wrong():
    rate = sum(d.right for d in islice(demonstrations(random.Random(1), 0.25), 400)) / 400
    assert 0.4 < rate < 0.7


def test_equal_seeds_give_equal_demonstrations():
    first, again = (list(islice(demonstrations(random.Random(2), 0.3), 20)) for _ in range(2))
    assert first == again


FILES = {"a.csv": "id,x\n1,2.5\n2,3.5\n", "data/b.csv": "id;x\n1;4\n"}


def run(code: str) -> str:
    return Simulator(FILES).call(Action(tool="python", arguments={"code": code})).text


def search(pattern: str) -> str:
    return Simulator(FILES).call(Action(tool="search_files", arguments={"pattern": pattern})).text


@pytest.mark.parametrize(
    ("code", "last"),
    [
        (program("total", "a.csv", "x"), "6.0"),
        (program("average", "./a.csv", "x"), "3.0"),
        (program("last", "data/b.csv", "x", ";"), "4"),
        (program("count", "data//b.csv", "x"), "1"),
        ("print()", ""),
        ("x = 1", "(no output)"),
        (program("total", "b.csv", "x"), "exit code 1"),
    ],
)
def test_programs_run(code, last):
    assert run(code).rstrip("\n").rpartition("\n")[2] == last


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (program("total", "b.csv", "x"), "FileNotFoundError: [Errno 2] No such file or directory: 'b.csv'"),
        (program("total", "data/b.csv", "x"), "KeyError: 'x'"),
        (program("last", "a.csv", "y"), "KeyError: 'y'"),
        ("print(sum(values))", "NameError: name 'values' is not defined"),
        ("print(max([]))", "ValueError: max() arg is an empty sequence"),
        ("print(1 / 0)", "ZeroDivisionError: division by zero"),
        ("print((", "SyntaxError: '(' was never closed"),
    ],
)
def test_errors_are_pythons_own(code, error):
    assert run(code).splitlines()[-2:] == [error, "exit code 1"]


@pytest.mark.parametrize(
    "code",
    [
        "import os",
        "import csv as os",
        "from csv import reader",
        "().__class__",
        "__import__('os')",
        "print.__self__",
        "csv.reader.__init__",
        "open('/etc/passwd')",
        "open('../a.csv')",
        "open('data')",
        "open(0)",
        "exec('1')",
        "eval",
        "while True: pass",
        "print(9 ** 9 ** 9)",
        "print('x' * 10)",
        "print(10000000)",
        "lambda: 1",
        "[x for x in [y for y in [z for z in [w for w in 'ab']]]]",
        "x" * 3000,
        "(" * 500,
        "def f(): pass",
        "print(f'{1}')",
        "x: int = 1",
    ],
)
def test_whatever_could_do_harm_or_is_not_understood_is_refused(code):
    try:
        text = run(code)
    except NotSimulated:
        return
    assert "NameError" in text or "SyntaxError" in text


def test_searching_finds_paths_and_then_lines():
    assert search("b.csv") == "data/b.csv"
    assert search("x") == "a.csv:1:id,x\ndata/b.csv:1:id;x"
    assert search("nothing") == "no match"


@pytest.mark.parametrize("action", [Action(tool="shell", arguments={"command": "ls"}), Action(tool="python")])
def test_other_calls_are_refused(action):
    with pytest.raises(NotSimulated):
        Simulator(FILES).call(action)
