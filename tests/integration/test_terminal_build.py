"""RUN steps of a Dockerfile, carried out in real sandboxes: what they make is the agent's workspace."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from longstride.client.cli.terminal_task import app
from longstride.client.errors import UsageProblem
from longstride.client.terminal.build import Built
from longstride.client.terminal.importer import read
from longstride.client.terminal.rehearsal import Rehearsal, rehearsals
from longstride.contracts.v1.environment import Environment
from longstride.sandbox.base import Command, SandboxBackend
from longstride.sandbox.workspace import Workspaces
from longstride.storage.memory import MemoryArtifacts
from tests.support import leaks
from tests.support.sandboxes import SMALL, arena
from tests.support.terminal_folders import harbor, terminal_bench


@pytest.fixture(scope="module")
def backend() -> Iterator[SandboxBackend]:
    with arena():
        pass  # skips, or fails in continuous integration, where there is no bubblewrap
    with leaks.none_left(), rehearsals() as made:
        yield made


class Bench:
    """Builds, and looks at what was built as an agent would."""

    def __init__(self, backend: SandboxBackend) -> None:
        self.backend, self.artifacts = backend, MemoryArtifacts()

    def build(self, folder: Path) -> Built:
        built = read(folder).built(self.backend, self.artifacts, "session")
        assert built is not None
        return built

    def refused(self, folder: Path) -> str:
        with pytest.raises(UsageProblem) as caught:
            self.build(folder)
        return str(caught.value)

    def seen(self, folder: Path, command: str) -> str:
        built = self.build(folder)
        environment: Environment = read(folder).fields["environment"]
        workspaces = Workspaces(self.artifacts, self.backend.volumes)
        try:
            with workspaces.open("t", built.workspace, (), SMALL) as workspace:
                argv = ("/bin/sh", "-c", command)
                execution = self.backend.run(Command(argv, workspace.volume, SMALL, links=environment.links))
        finally:
            workspaces.close()
        return (execution.stdout + execution.stderr).decode()


@pytest.fixture
def bench(backend: SandboxBackend) -> Bench:
    return Bench(backend)


def test_steps_and_copies_are_carried_out_in_their_order(bench: Bench, tmp_path: Path) -> None:
    lines = (
        "FROM debian:12\nWORKDIR /app\nCOPY data/words.txt a.txt\nENV WHO=you\n"
        "RUN echo $WHO >> a.txt && cp a.txt b.txt\nCOPY data/words.txt a.txt\nRUN cat a.txt b.txt > c.txt\n"
    )
    assert bench.seen(harbor(tmp_path, lines), "cat /app/c.txt; cat /app/a.txt") == "hello\nhello\nyou\nhello\n"


def test_modes_links_and_empty_directories_are_kept(bench: Bench, tmp_path: Path) -> None:
    lines = (
        "FROM debian:12\nWORKDIR /app\nCOPY data .\n"
        "RUN mkdir -p empty bin && printf '#!/bin/sh\\necho ran\\n' > bin/x && chmod 755 bin/x && ln -s bin/x y\n"
    )
    assert bench.seen(harbor(tmp_path, lines), "cd /app && ./y && ls -d empty && readlink y") == "ran\nempty\nbin/x\n"


def test_places_outside_the_working_directory_are_written_to(bench: Bench, tmp_path: Path) -> None:
    lines = (
        "FROM debian:12\nRUN mkdir /data && mkdir /data/raw && seq 3 > /data/raw/n\nCOPY data /srv/in\n"
        "WORKDIR /app\nRUN wc -l < /data/raw/n > count && cat /srv/in/words.txt >> count\n"
    )
    assert bench.seen(harbor(tmp_path, lines), "cat /app/count /data/raw/n") == "3\nhello\n1\n2\n3\n"


def test_without_a_working_directory_the_root_is_the_workspace(bench: Bench, tmp_path: Path) -> None:
    lines = 'FROM debian:12\nCOPY data /data\nRUN cat data/words.txt > x.txt; mkdir /more "$(echo made)" && mkdir -p a/b && seq 2 > /more/n\n'
    seen = bench.seen(harbor(tmp_path, lines), "cat x.txt /data/words.txt /more/n; ls -d made a/b /a/b")
    assert seen == "hello\nhello\n1\n2\n/a/b\na/b\nmade\n"


def test_a_here_document_is_read_as_it_stands(bench: Bench, tmp_path: Path) -> None:
    lines = (
        "FROM debian:12\nWORKDIR /app\nRUN cat > calc.py <<'EOF'\n# two; three && four\ndef f():\n    return \"$HOME\"\nEOF\n"
        "RUN python3 - <<EOF\nimport calc\nopen('out', 'w').write(calc.f())\nEOF\n"
    )
    assert bench.seen(harbor(tmp_path, lines), "cat /app/out; sed -n 1p /app/calc.py") == "$HOME# two; three && four\n"


def test_what_one_step_leaves_in_tmp_is_there_for_the_next_and_told_of(bench: Bench, tmp_path: Path) -> None:
    lines = "FROM debian:12\nWORKDIR /app\nRUN echo 1 > /tmp/one\nRUN cat /tmp/one > two\n"
    folder = harbor(tmp_path, lines)
    assert bench.seen(folder, "cat /app/two; ls /tmp") == "1\n"
    (note,) = bench.build(folder).notes
    assert note.startswith("the RUN steps left /tmp/one, which no step of the agent sees")


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("echo no good >&2; false", "this step failed here (exit code 1)\n    no good"),
        (
            "echo 1 > /usr/local/lib/x",
            "directories that it makes; not elsewhere\n    /bin/sh: 1: cannot create /usr/local/lib/x",
        ),
        ("echo 1 > /opt/x", "cannot create /opt/x: Directory nonexistent"),
        ("mkdir -p /etc/app", "not elsewhere\n    mkdir: cannot create directory ‘/etc/app’: Read-only file system"),
        ("nothing-like-it --all", "exit code 127)\n    /bin/sh: 1: nothing-like-it: not found"),
        ("python3 -c 'import urllib.request as u; u.urlopen(\"http://192.0.2.1\")'", "Network is unreachable"),
        ("head -c 100M /dev/zero > big", "this step failed here (stopped by disk_mb=64)"),
        ("python3 -c 'x = bytearray(1 << 32)'", "this step failed here (stopped by memory_mb=1024)"),
    ],
)
def test_a_step_that_fails_is_told_with_its_line(bench: Bench, tmp_path: Path, step: str, told: str) -> None:
    why = bench.refused(harbor(tmp_path, f"FROM debian:12\nWORKDIR /app\nRUN true; ls\nRUN {step}\n"))
    assert f"environment/Dockerfile line 4: RUN {step}"[:60] in why
    assert told in why


def test_the_time_of_all_steps_is_bounded(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longstride.client.terminal.build.LONGEST_S", 1.0)
    why = bench.refused(harbor(tmp_path, "FROM debian:12\nWORKDIR /app\nRUN ls\nRUN sleep 60\nRUN ls\n"))
    assert "line 4: RUN sleep 60: this step failed here (stopped by wall_s=1)" in why


MAKE_REPOSITORY = """\
FROM ghcr.io/laude-institute/t-bench/ubuntu-24-04:20250624
RUN apt-get update && apt-get install -y git && rm -rf /var/lib/apt/lists/*
WORKDIR /app/site
RUN <<EOF
set -e
git init -q -b main
git config user.name Builder
git config user.email builder@site.example
echo 'Opening hours: 9 to 5' > hours.txt
git add hours.txt
git commit -q -m 'Opening hours'
git checkout -q --detach
echo 'Opening hours: 8 to 6, Sundays closed' > hours.txt
git commit -q -am 'New hours from May on'
git checkout -q main
echo 'Phone: 555 0100' > phone.txt
git add phone.txt
git commit -q -m 'Phone'
EOF
RUN git log --format=%s > .git/titles && test $(wc -l < .git/titles) = 2
"""
"""A history with a commit that no branch has, as repairs of repositories ask for."""


@pytest.mark.skipif(shutil.which("git") is None, reason="git is the host's own")
def test_a_task_whose_environment_is_made_by_its_steps_can_be_done_and_takes_doing(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    folder = terminal_bench(
        tmp_path,
        Dockerfile=MAKE_REPOSITORY,
        task_dot_yaml=(
            "instruction: |\n  I changed the opening hours in /app/site and committed them, and now they are gone.\n"
            "  Find my commit and merge it into main.\nmax_agent_timeout_sec: 120\nmax_test_timeout_sec: 30\n"
        ),
        tests__test_outputs_dot_py=(
            "from pathlib import Path\nsite = Path('/app/site')\n"
            "assert site.joinpath('hours.txt').read_text() == 'Opening hours: 8 to 6, Sundays closed\\n'\n"
            "assert site.joinpath('phone.txt').is_file()\n"
        ),
        solution_dot_sh=(
            "#!/bin/bash\nset -e\ncd /app/site\nlost=$(git reflog --format='%h %gs' | awk '/New hours/ {print $1; exit}')\n"
            "git merge -q -m 'Merge the new hours' $lost\n"
        ),
    )
    rehearsal = Rehearsal(read(folder), backend)
    try:
        oracle, idle = rehearsal.oracle(), rehearsal.idle()
    finally:
        rehearsal.close()
    assert (oracle.output, oracle.result.detail, oracle.result.error) == ("", "", None)
    assert (oracle.result.passed, idle.result.passed, idle.result.error) == (True, False, None)


def test_check_tells_of_a_step_that_fails_and_goes_on(tmp_path: Path, backend: SandboxBackend) -> None:
    bad = harbor(tmp_path / "bad", "FROM debian:12\nWORKDIR /app\nRUN false\n")
    good = harbor(tmp_path / "good", "FROM debian:12\nWORKDIR /app\nRUN mkdir data && echo hello > data/words.txt\n")
    done = CliRunner().invoke(app, ["check", str(bad), str(good), "--json"])
    first, second = map(json.loads, done.stdout.splitlines())
    assert "line 3: RUN false: this step failed here (exit code 1)" in first["error"]
    assert second["good"] is True
    assert done.exit_code == 1


def test_files_that_are_too_many_for_a_message_are_a_workspace(bench: Bench, tmp_path: Path) -> None:
    many = {f"environment__data__{number}_dot_txt": f"{number}\n" for number in range(400)}
    folder = harbor(tmp_path, **many)
    assert read(folder).files == ()
    assert bench.seen(folder, "ls /app/data | wc -l; cat /app/data/399.txt") == "401\n399\n"
