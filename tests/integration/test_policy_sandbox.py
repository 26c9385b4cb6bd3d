"""The simulator against the real tools, and the shipped policy against the demo's tasks: bubblewrap alone is needed."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from longstride.agent.context import Context
from longstride.agent.prompt import opening
from longstride.agent.reflect import reflect
from longstride.client.demo import DemoTask, load
from longstride.contracts.v1.action import Action
from longstride.contracts.v1.commands import Generate, SubmitTask
from longstride.contracts.v1.context import Message
from longstride.contracts.v1.input_file import InputFile
from longstride.policies.builtin.demonstrations import Expert
from longstride.policies.builtin.family import FamilyTask, sample
from longstride.policies.builtin.simulator import NotSimulated, Simulator
from longstride.policies.registry import PolicyRegistry
from longstride.policies.turn import answer
from tests.support.sandboxes import Arena, arena

torch.set_num_threads(1)

EXAMPLES = Path(__file__).parents[2] / "examples" / "demo.json"


@pytest.fixture(scope="module")
def box() -> Iterator[Arena]:
    with arena() as made:
        yield made


def tasks(count: int) -> list[FamilyTask]:
    rng = random.Random(31)
    return [sample(rng) for _ in range(count)]


def inputs(files: dict[str, str]) -> list[InputFile]:
    return [InputFile(path=path, text=text) for path, text in files.items()]


def same(box: Arena, files: dict[str, str], action: Action, name: str) -> None:
    real = box.act(action.tool, task=name, inputs=inputs(files), **action.arguments).observation
    simulated = Simulator(files).call(action)
    assert real is not None
    assert (simulated.status, simulated.exit_code) == (real.status, real.exit_code)
    assert simulated.text == real.text


@pytest.mark.parametrize("number", range(12))
def test_demonstrations_are_observed_alike(box, number):
    task = tasks(12)[number]
    for step, (action, _) in enumerate(Expert(task, random.Random(number), slip=0.3).demonstrate().exchanges):
        if action.tool != "submit":
            same(box, task.files, action, f"demonstration-{number}-{step}")


FILES = {"a.csv": "id,x\n1,2.5\n2,3.5\n", "data/b.csv": "id;x\n1;4\n"}


@pytest.mark.parametrize(
    ("tool", "value"),
    [
        ("python", "print()"),
        ("python", "x = 1"),
        ("python", "print('a'); print(max([]))"),
        ("python", "print(sum(values))"),
        ("python", "import csv\nprint(list(csv.reader(open('a.csv'))))"),
        ("python", "print(open('./data//b.csv'))['x']"),
        ("python", "print((1"),
        ("python", "print('a' 'b'"),
        ("python", "rows = [\n"),
        ("python", "print(1 / 0)"),
        ("python", "print(float('x'))"),
        ("python", "  print(1)"),
        ("python", "print(round(2.675, 2), 'é')"),
        ("search_files", "x"),
        ("search_files", "b.csv"),
        ("search_files", "data/"),
        ("search_files", "nothing"),
        ("search_files", "-e"),
        ("search_files", "[a-z]*"),
    ],
)
def test_odd_calls_are_observed_alike_or_not_simulated(box, tool, value):
    key = {"python": "code", "search_files": "pattern"}[tool]
    action = Action(tool=tool, arguments={key: value})
    try:
        Simulator(FILES).call(action)
    except NotSimulated:
        return
    same(box, FILES, action, f"odd-{abs(hash(value))}")


@pytest.mark.parametrize("number", range(3))
def test_the_shipped_policy_solves_the_demo_in_a_real_sandbox(box, number):
    demo = load(EXAMPLES)[number]
    failures, steps, checks = play(box, demo, f"demo-{number}")
    assert [check.passed for check in checks] == [True] * len(checks) != []
    assert steps <= 6
    assert failures == number  # The first meets no trouble, the second one, the third two.


def play(box: Arena, demo: DemoTask, name: str):
    """Plan → execute → reflect without a planner: (failed calls, steps, the checks' results)."""
    files = [InputFile(path=place, text=source.read_text()) for source, place in demo.inputs]
    submit = SubmitTask.model_validate({**demo.fields, "inputs": files})
    policies = PolicyRegistry()
    context, workspace, failures = Context().add(*opening(submit)), None, 0
    for step in range(1, 9):
        command = Generate(
            step=step,
            policy=submit.policy,
            track=submit.track,
            context=context.head(),
            tools=(),
            sampling=submit.sampling,
            timeout_s=60,
        )
        policy = policies.resolve(submit.policy)
        said = answer(command, policy=policy, artifacts=box.artifacts, session_id="s", tools=())
        assert said.action is not None, said
        last = said.action.tool == "submit"
        done = box.act(
            said.action.tool,
            task=name,
            workspace=workspace,
            inputs=() if workspace else files,
            checks=submit.checks if last else (),
            **said.action.arguments,
        )
        assert done.observation is not None
        if last:
            return failures, step, done.checks
        workspace = done.workspace
        failures += done.observation.status != "ok"
        reflection = reflect(said.action, done.observation, ())
        seen = "\n".join(filter(None, (done.observation.text, reflection)))
        context = context.add(
            Message(role="assistant", content=said.text, tokens=said.tokens, step=step),
            Message(role="tool", content=seen, step=step),
        )
    raise AssertionError("it never submitted")
