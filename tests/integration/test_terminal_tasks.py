"""Terminal tasks in real sandboxes: the gate for our own, and what its verdicts rest on."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from longstride.client.cli.terminal_task import app
from longstride.client.errors import UsageProblem
from longstride.client.terminal.importer import read
from longstride.client.terminal.rehearsal import Rehearsal, rehearsals
from longstride.contracts.v1.environment import Environment
from longstride.sandbox.base import SandboxBackend
from tests.support.sandboxes import arena
from tests.support.terminal_folders import DOCKERFILE, EXAMPLES, harbor, terminal_bench

OURS = sorted(folder for folder in EXAMPLES.iterdir() if (folder / "task.toml").is_file())


@pytest.fixture(scope="module")
def backend() -> Iterator[SandboxBackend]:
    with arena():
        pass  # skips, or fails in continuous integration, where there is no bubblewrap
    with rehearsals() as made:
        yield made


@pytest.fixture
def rehearse(backend: SandboxBackend) -> Iterator:
    made: list[Rehearsal] = []

    def of(folder: Path) -> Rehearsal:
        made.append(Rehearsal(read(folder), backend))
        return made[-1]

    yield of
    for rehearsal in made:
        rehearsal.close()


def test_there_are_ten() -> None:
    assert len(OURS) == 10


@pytest.mark.parametrize("folder", OURS, ids=lambda folder: folder.name)
def test_our_own_tasks_can_be_done_and_take_doing(rehearse, folder: Path) -> None:
    try:
        rehearsal = rehearse(folder)
    except UsageProblem as problem:
        if not re.search(r"line 2: .*: (?:there is no program|python3 has no module pip)", str(problem)):
            raise
        pytest.skip(str(problem))  # a compiler, git and pip are the host's own
    oracle, idle = rehearsal.oracle(), rehearsal.idle()
    assert (oracle.output, oracle.result.detail, oracle.result.error) == ("", "", None)
    assert (oracle.result.passed, oracle.reward) == (True, 1.0)
    assert (idle.result.passed, idle.reward, idle.result.error) == (False, 0.0, None)


def test_a_part_of_the_work_earns_a_part_of_the_reward(rehearse, tmp_path: Path) -> None:
    """One of the five values that sales-report asks for."""
    folder = tmp_path / "sales-report"
    _copied(EXAMPLES / "sales-report", folder)
    (folder / "solution" / "solve.sh").write_text(
        '#!/bin/sh\necho \'{"best_seller": "lamp", "orders": 222}\' > report.json\n'
    )
    result = rehearse(folder).oracle().result
    assert (result.passed, result.score) == (False, pytest.approx(0.2))


PATHS = ["", "/opt/nothing", "$PATH:/opt/x", "/app/bin:$PATH"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("shebang", ["#!/bin/sh\n", "#!/usr/bin/env bash\n", ""])
def test_no_path_of_a_task_hides_what_checks_and_solutions_need(
    rehearse, tmp_path: Path, path: str, shebang: str
) -> None:
    lines = f"FROM debian:12\nENV PATH={path}\nWORKDIR /app\nCOPY data .\nRUN ls > seen.txt\n"
    script = f"{shebang}exec python3 -c \"assert open('/app/out.txt').read() == 'hello\\n'\"\n"
    folder = harbor(tmp_path, lines, tests__test_dot_sh=script, solution__solve_dot_sh="cp words.txt out.txt\n")
    rehearsal = rehearse(folder)
    oracle, idle = rehearsal.oracle(), rehearsal.idle()
    assert (oracle.output, oracle.result.detail, oracle.result.error) == ("", "", None)
    assert (oracle.result.passed, idle.result.passed, idle.result.error) == (True, False, None)


@pytest.mark.parametrize("where", ["environment.env", "verifier.env", "solution.env"])
def test_nor_does_one_of_its_configuration(rehearse, tmp_path: Path, where: str) -> None:
    folder = harbor(tmp_path, tests__test_dot_sh="exec python3 -c \"open('/app/out.txt')\"\n")
    config = (folder / "task.toml").read_text()
    (folder / "task.toml").write_text(f'{config}[{where}]\nPATH = "/opt/nothing"\n')
    rehearsal = rehearse(folder)
    assert (rehearsal.oracle().result.passed, rehearsal.idle().result.error) == (True, None)


def test_a_program_of_the_agents_does_not_judge_it(rehearse, tmp_path: Path) -> None:
    """Its own directory comes first in PATH; the interpreter of the check is the system's for all that."""
    lines = "FROM debian:12\nENV PATH=/app/bin:$PATH\nWORKDIR /app\nCOPY . .\n"
    forged = "#!/bin/sh\nmkdir bin && printf '#!/bin/sh\\necho score=1\\n' > bin/python3 && chmod +x bin/python3 && which python3\n"
    oracle = rehearse(harbor(tmp_path, lines, solution__solve_dot_sh=forged)).oracle()
    assert (oracle.output, oracle.result.passed, oracle.result.error) == ("", False, None)


def test_a_terminal_bench_folder_is_judged_by_its_scripts_exit_code(rehearse, tmp_path: Path) -> None:
    rehearsal = rehearse(terminal_bench(tmp_path))
    oracle, idle = rehearsal.oracle(), rehearsal.idle()
    assert (oracle.result.passed, oracle.reward) == (True, 1.0)
    assert (idle.result.passed, idle.reward) == (False, 0.0)
    assert "FileNotFoundError" in idle.result.detail


def test_a_solution_sees_what_a_container_would_show_it(rehearse, tmp_path: Path) -> None:
    """Its own folder, the variables, programs that may be run, and places outside the working directory."""
    lines = "COPY --chmod=755 tool.sh /opt/bin/tool\nENV PATH=/opt/bin:$PATH GREETING=hi\n"
    folder = harbor(
        tmp_path,
        DOCKERFILE + lines,
        environment__tool_dot_sh="#!/bin/sh\necho $GREETING $TWO\n",
        solution__part_dot_txt="two",
        solution__solve_dot_sh="#!/bin/bash\nset -e\ncd /app\n[[ $PWD == /app ]]\nTWO=$(cat /solution/part.txt) tool > out.txt\n",
        tests__test_dot_sh='#!/bin/sh\n[ "$(cat /app/out.txt)" = "hi two" ] && echo \'{"reward": 0.5}\' > /logs/verifier/reward.json\n',
    )
    oracle = rehearse(folder).oracle()
    assert oracle.output == ""
    assert (oracle.result.passed, oracle.reward) == (False, 0.5)


@pytest.mark.parametrize(
    ("script", "passed", "error", "detail"),
    [
        ("exit 0", True, None, ""),
        ("echo no good; exit 3", False, None, "exit code 3\nno good"),
        ("echo 1 > /logs/verifier/reward.txt; exit 3", True, None, ""),
        ("echo much > /logs/verifier/reward.txt", False, None, "test.sh: reward.txt holds no reward"),
        ("sleep 60", False, None, "stopped by wall_s=1"),
        ("pytest-that-nobody-has -q", False, "needs the program 'pytest-that-nobody-has'", ""),
    ],
)
def test_a_test_script_says_it_by_its_reward_or_its_exit_code(
    rehearse, tmp_path: Path, script: str, passed: bool, error: str | None, detail: str
) -> None:
    toml = "[verifier]\ntimeout_sec = 1.0\n"
    folder = harbor(tmp_path, task_dot_toml=toml, tests__test_dot_sh=f"#!/bin/sh\n{script}\n")
    result = rehearse(folder).idle().result
    assert result.passed is passed
    assert (error or "") in (result.error or "")
    assert detail in result.detail


def test_an_interpreter_that_the_host_lacks_is_no_verdict(rehearse, tmp_path: Path) -> None:
    folder = harbor(tmp_path, tests__test_dot_sh="#!/opt/none/zsh\nexit 0\n")
    assert "'zsh', which is not installed" in (rehearse(folder).idle().result.error or "")


def test_the_agent_sees_neither_tests_nor_solution(tmp_path: Path) -> None:
    with arena() as box:
        environment = read(harbor(tmp_path)).fields["environment"]
        told = box.act(
            "shell",
            command="cat /tests/* /solution/*; find / -path /usr -prune -o -name test.sh -print; ls -A",
            environment=environment,
        )
    assert told.observation is not None
    lines = [line for line in told.observation.text.splitlines() if "ermission denied" not in line]
    assert lines == [
        "cat: '/tests/*': No such file or directory",
        "cat: '/solution/*': No such file or directory",
    ]


def test_tools_know_a_containers_paths() -> None:
    environment = Environment(
        links={"/app": "/workspace", "/srv/in": "/workspace/.elsewhere/in"}, variables={"WORD": "hi"}
    )
    with arena() as box:
        made = box.act("write_file", path="/app/a.txt", content="one\n", environment=environment)
        also = {"workspace": made.workspace, "environment": environment}
        placed = box.act("write_file", path="/srv/in/b.txt", content="two\n", **also)
        also["workspace"] = placed.workspace
        told = box.act("shell", command="cat /app/a.txt /srv/in/b.txt; echo $WORD > /app/c; ls -A", **also)
        assert told.observation is not None
        assert told.observation.text == "one\ntwo\n.elsewhere\na.txt\nc\n"
        also["workspace"] = told.workspace
        read_back = box.act("read_file", path="/srv/in/b.txt", **also).observation
        found = box.act("search_files", pattern="one", path="/app", **also).observation
        handed_in = box.act("submit", answer="", artifacts=["/app/c"], **also)
    assert read_back is not None
    assert read_back.text == "two\n"
    assert found is not None
    assert found.text == "a.txt:1:one"
    assert [artifact.name for artifact in handed_in.artifacts] == ["c"]


@pytest.mark.parametrize(
    ("change", "code", "facts"),
    [
        ({}, 0, {"good": True}),
        ({"solution__solve_dot_sh": "#!/bin/sh\necho oh no\nexit 4\n"}, 1, {"good": False}),
        ({"tests__test_dot_sh": "#!/bin/sh\nexit 0\n"}, 1, {"good": False}),
        ({"environment__Dockerfile": "FROM postgres\n"}, 1, {"good": False}),
    ],
)
def test_the_command_tells_good_tasks_from_others(
    backend: SandboxBackend, tmp_path: Path, change: dict[str, str], code: int, facts: dict[str, object]
) -> None:
    folder = harbor(tmp_path)
    harbor(folder, **change)
    if "environment__Dockerfile" in change:
        (folder / "environment" / "Dockerfile").write_text(change["environment__Dockerfile"])
    result = CliRunner().invoke(app, ["check", str(folder), "--json"])
    assert result.exit_code == code, result.output
    told = json.loads(result.stdout)
    assert {name: told[name] for name in facts} == facts
    if "solution__solve_dot_sh" in change:
        assert told["solution"]["output"] == "oh no\nexit code 4"


def test_more_hidden_files_than_a_message_names_are_refused(rehearse, tmp_path: Path) -> None:
    folder = harbor(tmp_path)
    for number in range(400):
        (folder / "tests" / f"{number}.bin").write_bytes(bytes([0, number % 256]) * 600)
    with pytest.raises(UsageProblem, match="403 files are too many for one task: pack some of them into an archive"):
        rehearse(folder)


def _copied(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        if path.is_file():
            at = target / path.relative_to(source)
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(path.read_bytes())
