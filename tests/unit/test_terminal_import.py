"""Folders of both layouts as tasks, and what stands in the way, with its line."""

from pathlib import Path

import pytest

from longstride.client.errors import UsageProblem
from longstride.client.terminal import programs
from longstride.client.terminal.importer import read
from longstride.contracts.v1.commands import SubmitTask
from tests.support.terminal_folders import DOCKERFILE, harbor, terminal_bench


@pytest.fixture(autouse=True)
def _known_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with few programs, whatever this one has."""
    have = ("python3", "gcc", "make", "g++", "git")
    monkeypatch.setattr(programs, "has_program", lambda name: name in have)
    monkeypatch.setattr(programs, "has_module", lambda name: name == "pip")
    monkeypatch.setattr(programs, "python_version", lambda: "3.11")
    monkeypatch.setattr(programs, "_version_of", {"attrs": "23.2.0"}.get)


def refused(folder: Path) -> str:
    with pytest.raises(UsageProblem) as caught:
        read(folder)
    return str(caught.value)


def placed(folder: Path) -> dict[str, str]:
    return {file.path: file.source.relative_to(folder).as_posix() for file in read(folder).files}


def test_a_harbor_folder_is_a_task(tmp_path: Path) -> None:
    folder = harbor(tmp_path, DOCKERFILE + 'ENV WORD=hello GREETING="$WORD you"\n')
    task = read(folder)
    submit = SubmitTask.model_validate({**task.fields, "instruction": task.instruction})
    assert submit.instruction == "Write hello to /app/out.txt."
    assert [(file.path, file.source) for file in task.files] == [
        ("data/words.txt", folder / "environment/data/words.txt")
    ]
    assert submit.environment.links == {
        "/app": "/workspace",
        "/tests": "/run/longstride/checks",
        "/solution": "/run/longstride/solution",
        "/logs": "/tmp/logs",
    }
    assert submit.environment.variables == {"WORD": "hello", "GREETING": "hello you"}
    assert (submit.limits.wall_clock_s, submit.limits.submissions) == (300, 1)
    sandbox = submit.sandbox
    assert (sandbox.cpus, sandbox.memory_mb, sandbox.disk_mb, sandbox.wall_s, sandbox.cpu_s) == (2, 1024, 64, 300, 600)
    assert sorted(file.path for file in task.hidden) == ["longstride_verify.py", "test.sh"]
    check = task.check(())
    assert (check.timeout_s, check.weight) == (45, 1)
    assert task.notes == ("environment/Dockerfile line 1: FROM debian:12-slim: this host's /usr stands in for it",)


def test_a_terminal_bench_folder_is_a_task(tmp_path: Path) -> None:
    folder = terminal_bench(tmp_path)
    task = read(folder)
    assert task.instruction == "Write hello to /app/out.txt.\n"
    assert placed(folder) == {"words.txt": "words.txt"}
    assert sorted(file.path for file in task.tests) == ["run-tests.sh", "test_outputs.py"]
    assert (task.test, task.solve, task.test_timeout_s) == ("run-tests.sh", "solution.sh", 30)
    assert task.fields["limits"]["wall_clock_s"] == 120
    assert task.fields["environment"].variables == {"WORD": "hello"}


def test_a_training_sets_mark_is_no_part_of_the_instruction(tmp_path: Path) -> None:
    text = "<!-- harbor-canary GUID 1 -->\n\n# BENCHMARK: canary GUID 2\n\n# Title\n\nDo it, canary or not.\n"
    assert read(harbor(tmp_path, instruction_dot_md=text)).instruction == "# Title\n\nDo it, canary or not.\n"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("WORKDIR /app\nCOPY data .\n", {"words.txt": "environment/data/words.txt"}),
        ("WORKDIR /app\nCOPY data/words.txt ./\n", {"words.txt": "environment/data/words.txt"}),
        ("WORKDIR /app\nCOPY data/words.txt in.txt\n", {"in.txt": "environment/data/words.txt"}),
        ("WORKDIR /app\nCOPY data/*.txt /app/in/\n", {"in/words.txt": "environment/data/words.txt"}),
        ('WORKDIR /app\nCOPY ["data/words.txt", "a b/"]\n', {"a b/words.txt": "environment/data/words.txt"}),
        (
            "ARG WHERE=/app\nWORKDIR $WHERE\nADD --chown=a:a data \\\n  # why\n  ${TO:-sub}/x\n",
            {"sub/x/words.txt": "environment/data/words.txt"},
        ),
        (
            "WORKDIR /app\nWORKDIR src\nCOPY data/words.txt ../x.txt\n",
            {".elsewhere/app/x.txt": "environment/data/words.txt"},
        ),
        ("WORKDIR /app\nCOPY data /srv/in\n", {".elsewhere/srv/in/words.txt": "environment/data/words.txt"}),
        ("COPY data /data\n", {"data/words.txt": "environment/data/words.txt"}),
    ],
)
def test_files_go_where_docker_would_put_them(tmp_path: Path, lines: str, expected: dict[str, str]) -> None:
    assert placed(harbor(tmp_path, f"FROM debian:12\n{lines}")) == expected


@pytest.mark.parametrize(
    ("lines", "links"),
    [
        ("WORKDIR /app\nCOPY data /srv/in\n", {"/app": "/workspace", "/srv": "/workspace/.elsewhere/srv"}),
        (
            "WORKDIR /app/src\nCOPY data /app/in\n",
            {"/app/src": "/workspace", "/app/in": "/workspace/.elsewhere/app/in"},
        ),
        ("COPY data /data\nCOPY data /home/u/d\n", {"/data": "/workspace/data", "/home/u": "/workspace/home/u"}),
        ("WORKDIR /workspace\nCOPY data .\n", {}),
    ],
)
def test_places_outside_the_working_directory_are_linked(tmp_path: Path, lines: str, links: dict[str, str]) -> None:
    found = read(harbor(tmp_path, f"FROM debian:12\n{lines}")).fields["environment"].links
    assert {at: to for at, to in found.items() if at not in ("/tests", "/solution", "/logs")} == links


def test_programs_are_executable(tmp_path: Path) -> None:
    folder = harbor(
        tmp_path, DOCKERFILE + "RUN mkdir -p /app && chmod +x /app/*.sh\n", environment__run_dot_sh="echo\n"
    )
    assert {file.path: file.executable for file in read(folder).files} == {"data/words.txt": False, "run.sh": True}


def test_what_dockerignore_names_is_left_out(tmp_path: Path) -> None:
    folder = harbor(tmp_path, environment___dot_dockerignore="# no drafts\n**/*.draft\nnotes\n!notes/keep\n")
    for name in ("a.draft", "data/b.draft", "notes/c", "notes/keep"):
        (folder / "environment" / name).parent.mkdir(exist_ok=True)
        (folder / "environment" / name).write_text("x")
    assert set(placed(folder)) == {"data/words.txt", "notes/keep"}


@pytest.mark.parametrize(
    ("dockerfile", "why"),
    [
        ("FROM postgres:16\n", "environment/Dockerfile line 1: FROM postgres:16: this image cannot be had here"),
        ("FROM node:22\n", "line 1: FROM node:22: this image cannot be had here"),
        ("WORKDIR /app\n", "environment/Dockerfile: there is no FROM"),
        ("FROM debian AS one\nFROM debian\n", "line 2: FROM debian: builds of several stages"),
        ("FROM debian\nCOPY --from=uv /uv /bin/\n", "line 2: COPY --from=uv /uv /bin/: --from=uv is not carried out"),
        ("FROM debian\nWORKDIR /app\nCOPY nowhere .\n", "line 3: COPY nowhere .: there is no nowhere in"),
        ("FROM debian\nWORKDIR /app\nCOPY ../tests .\n", "line 3: COPY ../tests .: ../tests lies outside"),
        ("FROM debian\nCOPY data /etc/app\n", "line 2: COPY data /etc/app: '/etc/app/words.txt' lies in /etc"),
        (
            "FROM debian\nWORKDIR /usr/src/app\n",
            "'/usr/src/app' lies in /usr, which a sandbox fills itself: use another",
        ),
        ("FROM debian\nCOPY data /tests\n", "/tests is where the tests, the solution or their logs are shown"),
        ("FROM debian\nADD https://example.org/a /a\n", "line 2: ADD https://example.org/a /a: there is no network"),
        (
            "FROM debian\nRUN apt-get update && \\\n  apt-get install -y gcc redis\n",
            "line 2: RUN apt-get update && apt-get install -y gcc redis: there is no program redis in this host's /usr: install it",
        ),
        ("FROM debian\nRUN apt-get install -y python3-numpy\n", "python3 has no module numpy: install it"),
        ("FROM debian\nRUN pip install requests==2.0\n", "this host's python3 has no requests: install it"),
        ("FROM debian\nRUN python3 -m pip install attrs==1.0\n", "this host's python3 has attrs 23.2.0: install it"),
        (
            "FROM debian\nRUN make && curl -LsSf https://astral.sh/uv/install.sh | sh\n",
            "line 2: RUN make && curl -LsSf https://astral.sh/uv/install.sh | sh: there is no network here: put what it",
        ),
        ("FROM debian\nRUN git clone https://a.example/b /b\n", "/b: there is no network here: put what it fetches"),
        ("FROM debian\nRUN if true; then apt-get install -y gcc; fi\n", "gcc; fi: there is no network here"),
        (
            "FROM debian\nRUN make\nRUN useradd -m dev\n",
            "line 3: RUN useradd -m dev: a sandbox has one user, who cannot",
        ),
        ("FROM debian\nRUN --mount=type=secret,id=k make\n", "--mount=type=secret,id=k is not given: use files"),
        ("FROM debian\nRUN <<EOF\nmake\npip install a\nEOF\n", "RUN <<EOF: there is no network here"),
        ("FROM debian\nRUN bash -e <<EOF\npip install a\nEOF\n", "RUN bash -e <<EOF: there is no network here"),
        ("FROM debian\nRUN <<EOF bash\nuseradd a\nEOF\n", "RUN <<EOF bash: a sandbox has one user, who cannot"),
        ("FROM debian\nRUN <<EOF\n#!/usr/bin/python3\nx\nEOF\n", "a here-document is read by the shell here"),
        ("FROM debian\nRUN cat <<EOF > a\nx\n", "line 2: RUN cat <<EOF > a: its here-document does not end with EOF"),
        (
            "FROM debian\nRUN chmod +x /app/no.sh\n",
            "line 2: RUN chmod +x /app/no.sh: /app/no.sh is no file that was copied",
        ),
        (
            'FROM debian\nENTRYPOINT ["/run.sh"]\n',
            'line 2: ENTRYPOINT ["/run.sh"]: nothing is started before the agent',
        ),
        ("FROM debian\nCOPY <<EOF /a\nx\nEOF\n", "line 2: COPY <<EOF /a: here-documents are not copied"),
        ("FROM debian\nFLY away\n", "line 2: FLY away: this instruction is not known"),
        ("FROM debian\n{}\n", "line 2: '{}' is not an instruction"),
        ("FROM debian\nCOPY 'a .\n", "line 2: COPY 'a .: No closing quotation"),
    ],
)
def test_what_cannot_be_had_is_said_with_its_line(tmp_path: Path, dockerfile: str, why: str) -> None:
    assert why in refused(harbor(tmp_path, dockerfile))


def test_packages_that_the_host_has_are_no_problem(tmp_path: Path) -> None:
    lines = (
        "RUN apt-get update && apt-get install -y --no-install-recommends build-essential git=1:2.39 python3-pip tmux"
        " && apt-get clean && rm -rf /var/lib/apt/lists/*\nRUN pip install --no-cache-dir attrs==23.2.0\n"
    )
    assert read(harbor(tmp_path, DOCKERFILE + lines)).name == tmp_path.name


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    told = refused(
        harbor(
            tmp_path,
            "FROM postgres\nRUN wget https://a.example/b\n",
            tests__test_dot_sh="curl -L https://astral.sh/uv | sh\n",
        )
    )
    assert len(told.splitlines()) == 3
    assert told.startswith(f"{tmp_path} cannot be run here:\n  environment/Dockerfile line 1")


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("apt-get update", True),
        ("  curl -LsSf https://astral.sh/uv/install.sh | sh", True),
        ("if uvx -w pytest pytest /tests; then", True),
        ("pip install pytest", True),
        ("cd /app && git clone https://example.org/a", True),
        ("curl -s http://localhost:8000/health", False),
        ("curl http://127.0.0.1:1/", False),
        ("pip install --no-index --find-links w pytest", False),
        ("# apt-get install curl", False),
        ("echo apt-get is a word", False),
    ],
)
def test_tests_that_need_the_network_are_refused(tmp_path: Path, line: str, seen: bool) -> None:
    folder = harbor(tmp_path, tests__test_dot_sh=f"#!/bin/sh\n{line}\n")
    if seen:
        assert "tests/test.sh line 2 (`" in refused(folder)
    else:
        assert read(folder).tests


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"task_dot_toml": "agent = 1"}, "task.toml: agent: Input should be"),
        ({"task_dot_toml": "[agent"}, "is not TOML"),
        ({"task_dot_toml": "[agent]\ntimeout_sec = -1"}, "agent.timeout_sec: Input should be greater than 0"),
        ({"task_dot_toml": "[environment]\nmemory = '2X'"}, "environment.memory: '2X' is no size"),
        ({"task_dot_toml": "[environment]\ngpus = 1"}, "task.toml environment.gpus: sandboxes have no GPU"),
        (
            {"task_dot_toml": "[environment]\ndocker_image = 'a/b:1'"},
            "environment.docker_image = 'a/b:1': this image cannot",
        ),
        ({"task_dot_toml": "[environment]\nos = 'windows'"}, "sandboxes are Linux"),
        ({"task_dot_toml": "[verifier]\nenvironment_mode = 'separate'"}, "the tests run where the agent worked"),
        ({"task_dot_toml": "[[steps]]\nname = 'one'"}, "tasks of several steps are not run"),
        (
            {"task_dot_toml": "[verifier]\nenv = {KEY = '${API_KEY}'}"},
            "verifier.env.KEY takes ${API_KEY} from this machine",
        ),
        ({"environment__docker-compose_dot_yaml": "services: {}"}, "services beside the agent's own"),
        ({"tests__longstride_verify_dot_py": ""}, "this name is taken"),
        ({"instruction_dot_md": "  \n"}, "the task: instruction: String should have at least 1 character"),
        ({"task_dot_toml": "[agent]\ntimeout_sec = 1e9"}, "wall_clock_s: Input should be less than or equal to"),
    ],
)
def test_what_a_configuration_asks_for_in_vain_is_said(tmp_path: Path, change: dict[str, str], why: str) -> None:
    folder = harbor(tmp_path, **change)
    if "env = " in change.get("task_dot_toml", ""):
        task = folder / "task.toml"
        assert task.is_file()
    assert why in refused(folder)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"task_dot_yaml": "instruction: [a"}, "task.yaml is not YAML"),
        ({"task_dot_yaml": "difficulty: easy"}, "task.yaml: instruction: Field required"),
        ({"docker-compose_dot_yaml": "services: {client: {}, db: {image: redis}}"}, "several services (client, db)"),
        ({"docker-compose_dot_yaml": "services: {client: {volumes: ['./a:/a']}}"}, "volume ./a:/a: nothing is mounted"),
        ({"Dockerfile": "FROM debian\nWORKDIR /app\nCOPY . .\n"}, "it would show the agent solution.sh"),
    ],
)
def test_what_a_terminal_bench_folder_asks_for_in_vain_is_said(
    tmp_path: Path, change: dict[str, str], why: str
) -> None:
    assert why in refused(terminal_bench(tmp_path, **change))


@pytest.mark.parametrize("missing", ["instruction.md", "tests/test.sh", "environment/Dockerfile"])
def test_a_folder_must_be_whole(tmp_path: Path, missing: str) -> None:
    folder = harbor(tmp_path)
    (folder / missing).unlink()
    assert Path(missing).name in refused(folder)


def test_other_folders_are_no_tasks(tmp_path: Path) -> None:
    assert "neither task.toml (Harbor) nor task.yaml (Terminal-Bench)" in refused(tmp_path)
    assert "is not a folder" in refused(tmp_path / "nowhere")


def test_links_in_an_environment_are_refused(tmp_path: Path) -> None:
    folder = harbor(tmp_path)
    (folder / "environment" / "link").symlink_to("/etc/passwd")
    assert "COPY . .: link is a link or no regular file" in refused(folder)


def test_an_empty_directory_is_told_of(tmp_path: Path) -> None:
    folder = harbor(tmp_path)
    (folder / "environment" / "data" / "out").mkdir()
    assert (
        "environment/Dockerfile: data/out is an empty directory, and there once a file is in it" in read(folder).notes
    )


@pytest.mark.parametrize(
    "place", ["environment/data", "environment/data/words.txt", "instruction.md", "tests/extra.txt"]
)
def test_no_link_in_a_folder_reaches_other_files_of_this_machine(tmp_path: Path, place: str) -> None:
    secret = tmp_path / "home"
    secret.mkdir()
    (secret / "words.txt").write_text("HOST-SECRET")
    folder = harbor(tmp_path / "task", dockerfile="FROM debian:12-slim\nWORKDIR /app\nCOPY data /app/data\n")
    target = folder / place
    if target.is_dir():
        (target / "words.txt").unlink()
        target.rmdir()
    target.unlink(missing_ok=True)
    target.symlink_to(secret if place.endswith("data") else secret / "words.txt")
    with pytest.raises(UsageProblem, match="a link"):
        read(folder)


def test_a_link_to_another_file_of_the_folder_is_that_file(tmp_path: Path) -> None:
    folder = harbor(tmp_path / "task")
    (folder / "tests" / "same.sh").symlink_to("test.sh")
    assert {file.path for file in read(folder).tests} >= {"test.sh", "same.sh"}


def built(folder: Path) -> list[tuple[list[str], str, tuple[str, ...], str]]:
    """Each stage: the files before it, its line, what is run and where."""
    build = read(folder).build
    assert build is not None
    return [
        ([f.path for f in stage.files], stage.step.where.split(": ")[0][-1], stage.step.argv, stage.step.folder)
        for stage in build.stages
        if stage.step
    ]


SH = ("/bin/sh", "-c")


@pytest.mark.parametrize(
    ("lines", "steps"),
    [
        ("WORKDIR /app\nCOPY data .\nRUN make\n", [(["words.txt"], "4", (*SH, "make"), "/app")]),
        (
            "WORKDIR /app\nRUN apt-get update && apt-get install -y gcc && gcc -o a a.c; rm -rf /var/lib/apt/lists/*\n",
            [([], "3", (*SH, ": && : && gcc -o a a.c ; :"), "/app")],
        ),
        ("RUN python3 a.py ; true\n", [([], "2", (*SH, "python3 a.py ; :"), "/workspace")]),
        (
            "RUN test -f /x && chown u a.py ; python3 a.py\n",
            [([], "2", (*SH, "test -f /x && : ; python3 a.py"), "/workspace")],
        ),
        (
            "RUN chown u a.py || python3 fallback.py\n",
            [([], "2", (*SH, "chown u a.py || python3 fallback.py"), "/workspace")],
        ),
        (
            "WORKDIR /app\nRUN pip install 'attrs>=20' && mkdir a || make\n",
            [([], "3", (*SH, ": && mkdir a || make"), "/app")],
        ),
        ("RUN set -eux; make\n", [([], "2", (*SH, "set -eux; make"), "/workspace")]),
        (
            "WORKDIR /app/sub\nRUN for i in 1 2; do echo $i; done && true\nWORKDIR /app\n",
            [([], "3", (*SH, "for i in 1 2; do echo $i; done && true"), "/app/sub")],
        ),
        ('WORKDIR /app\nRUN ["python3", "make it.py"]\n', [([], "3", ("python3", "make it.py"), "/app")]),
        (
            'SHELL ["/bin/bash", "-c"]\nRUN --mount=type=cache,target=/c [[ a ]]\n',
            [([], "3", ("/bin/bash", "-c", "[[ a ]]"), "/workspace")],
        ),
        (
            "RUN cat <<'A' > a && cat <<B\n # kept\n\nA\ntwo\nB\nRUN make\n",
            [
                ([], "2", (*SH, "cat <<'A' > a && cat <<B\n # kept\n\nA\ntwo\nB"), "/workspace"),
                ([], "8", (*SH, "make"), "/workspace"),
            ],
        ),
        ("RUN <<EOF\nmake\nmake install\nEOF\n", [([], "2", (*SH, "make\nmake install"), "/workspace")]),
        (
            "RUN <<EOF python3\nprint(1)\nEOF\n",
            [([], "2", (*SH, "<<EOF python3\nprint(1)\nEOF"), "/workspace")],
        ),
        (
            "RUN <<EOF > setup.sh\nmkdir /x\npip install a\nuseradd b\nEOF\n",
            [([], "2", (*SH, "<<EOF > setup.sh\nmkdir /x\npip install a\nuseradd b\nEOF"), "/workspace")],
        ),
        (
            "RUN <<'ALL'\ncat > a <<EOF\nsudo b\nEOF\nmake\nALL\n",
            [([], "2", (*SH, "cat > a <<EOF\nsudo b\nEOF\nmake"), "/workspace")],
        ),
        (
            "RUN make\nCOPY data /in/\nRUN chmod +x /in/words.txt\n",
            [
                ([], "2", (*SH, "make"), "/workspace"),
                (["in/words.txt"], "4", (*SH, "chmod +x /in/words.txt"), "/workspace"),
            ],
        ),
        (
            "RUN pip install --no-index --find-links w --target lib a\n",
            [([], "2", (*SH, "pip install --no-index --find-links w --target lib a"), "/workspace")],
        ),
    ],
)
def test_steps_that_compute_are_planned_in_order(
    tmp_path: Path, lines: str, steps: list[tuple[list[str], str, tuple[str, ...], str]]
) -> None:
    assert built(harbor(tmp_path, f"FROM debian:12\n{lines}")) == steps


def test_a_step_has_the_variables_of_its_place(tmp_path: Path) -> None:
    build = read(harbor(tmp_path, "FROM debian\nARG A=1\nENV B=$A-2\nRUN make\nENV B=3\nRUN make\n")).build
    assert build is not None
    assert [dict(stage.step.variables) for stage in build.stages if stage.step] == [
        {"A": "1", "B": "1-2"},
        {"A": "1", "B": "3"},
    ]


def test_directories_that_steps_may_write_to_are_linked(tmp_path: Path) -> None:
    lines = (
        "WORKDIR /app\nRUN mkdir -p /data/raw out && ./fill > /data/raw/a\nWORKDIR /srv/x\nRUN ./more\nWORKDIR /app\n"
    )
    task = read(harbor(tmp_path, f"FROM debian\n{lines}"))
    links = {at: to for at, to in task.fields["environment"].links.items() if "elsewhere" in to}
    assert links == {"/data": "/workspace/.elsewhere/data", "/srv": "/workspace/.elsewhere/srv"}
    assert task.build is not None
    assert task.build.directories == (".elsewhere/data/raw", ".elsewhere/srv/x")
    assert task.files == ()


def test_without_a_step_that_computes_nothing_is_built(tmp_path: Path) -> None:
    lines = "RUN apt-get update && apt-get install -y gcc\nRUN set -e; mkdir -p /app/x\nRUN chown -R a:a /app\n"
    task = read(harbor(tmp_path, DOCKERFILE + lines))
    assert (task.build, [file.path for file in task.files]) == (None, ["data/words.txt"])


def test_another_user_is_told_of(tmp_path: Path) -> None:
    lines = "FROM debian:12-slim\nWORKDIR /app\nUSER nobody\nCOPY . .\n"
    told = read(harbor(tmp_path, lines)).notes
    assert told[1:] == (
        "environment/Dockerfile line 3: USER nobody: every command, RUN's too, is run under a user of the sandbox's own",
    )
