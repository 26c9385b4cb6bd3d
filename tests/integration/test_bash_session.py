"""A shell whose state survives between the steps of a task, in real sandboxes."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from longstride.contracts.v1.action import Action
from longstride.contracts.v1.commands import ExecuteAction
from longstride.contracts.v1.events import ActionExecuted
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.secrets import MemorySecrets
from longstride.sandbox.workspace import Workspaces
from longstride.storage.memory import MemoryArtifacts
from longstride.tools.executor import Executor
from longstride.tools.registry import builtin_tools
from tests.support.sandboxes import SMALL, Arena, arena

TOOLS = ("bash", "shell", "write_file")


@pytest.fixture(scope="module")
def box() -> Iterator[Arena]:
    with arena() as made:
        yield made


def bash(box: Arena, *lines: str, before: ActionExecuted | None = None, **options: object) -> ActionExecuted:
    """One call a line, each from the state that the one before it left."""
    for line in lines:
        # What an executor on another host does: the workspace is restored from its snapshot.
        box.workspaces.forget("task")
        workspace = before.workspace if before else None
        before = box.act("bash", workspace=workspace, tools=TOOLS, command=line, **options)
    assert before is not None
    return before


def seen(executed: ActionExecuted) -> tuple[str, str]:
    assert executed.observation is not None, executed
    return executed.observation.status, executed.observation.text


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (("mkdir -p a/b; cd a/b", "pwd"), "/workspace/a/b\n"),
        (("mkdir a; cd a", "cd -"), "/workspace\n"),
        (("x='two  words'", 'echo "$x"'), "two  words\n"),
        (("x=local; export y=passed", "env | grep -E '^(x|y)='"), "y=passed\n"),
        (("export z", "z=later", "env | grep ^z="), "z=later\n"),
        (("x=$'a\\n\\'b\\'\\n$(touch /tmp/no) \\\\'", 'printf %s "$x" | base64'), "YQonYicKJCh0b3VjaCAvdG1wL25vKSBc\n"),
        (("x=$'\\xff\\xfe\\x01\\x80'", "printf %s \"$x\" | od -An -tx1"), " ff fe 01 80\n"),
        (("a=(one 'two three' ''); a[7]=x", 'printf "<%s>" "${!a[@]}" "${a[@]}"; echo'), "<0><1><2><7><one><two three><><x>\n"),
        (("declare -A m", "m[k]=v; m['a b]']=w", 'echo "${m[k]}${m["a b]"]} ${#m[@]}"'), "vw 2\n"),
        (("declare -i n", "n=2+3", "n+=1; echo $n"), "6\n"),
        (("declare -u loud=a", "loud=b; echo $loud"), "B\n"),
        (("readonly r=1", "r=2; echo not reached", "echo $r"), "1\n"),
        (("target=1; declare -n ref=target", "ref=2", "echo $target"), "2\n"),
        (("end=1 variable=2", "echo $end $variable"), "1 2\n"),
        (("unset LANG HOME", "echo ${LANG-none} ${HOME-none}"), "none none\n"),
        (("PATH=/nowhere", "echo builtins; ls", "PATH=/bin:/usr/bin; ls -d ."), ".\n"),
        (("IFS=:", 'x=a:b; set -- $x; echo "$2"'), "b\n"),
        (("IFS=0123456789", "f() { echo f; }", "f"), "f\n"),
        (("set -- one 'two three'", 'echo $# "$2"'), "2 two three\n"),
        (("f() { local x=$1; echo \"<$x>\"; }", "f in"), "<in>\n"),
        (("a-b.c() { echo odd; }; function if { echo keyword; }", "a-b.c; \\if"), "odd\nkeyword\n"),
        (("f() { cat <<E\n$1's \"text\"\nE\n}", "f here"), "here's \"text\"\n"),
        (("shopt -s extglob; f() { [[ $1 == +(a|b) ]] && echo yes; }", "f abba"), "yes\n"),
        (("f() { echo exported; }; export -f f", "bash -c f"), "exported\n"),
        (("alias ll='echo aliased'; alias -- -x='echo dashed'", "ll; -x"), "aliased\ndashed\n"),
        (("alias shopt='echo no'; alias builtin='echo no'; alias set='echo no'", "\\echo fine"), "fine\n"),
        (("set -o pipefail", "false | true; echo $?"), "1\n"),
        (("shopt -s nullglob", "echo none*"), "\n"),
        (("shopt -u expand_aliases", "alias q='echo no'", "q 2>/dev/null || echo off"), "off\n"),
        (("umask 077", "touch f; stat -c %a f"), "600\n"),
        (("trap 'echo caught' USR1", "kill -USR1 $$"), "caught\n"),
        (("trap 'echo failed' ERR", "false; true"), "failed\n"),
        (("set -o posix", "set -o | grep -c 'posix.*on'"), "1\n"),
        (("x=1; set -n", "echo $x"), "\n"),
        (("cd /tmp; mkdir gone; cd gone", "pwd"), "/workspace\nbash: /tmp/gone is not there any more: this call starts in /workspace\n"),
    ],
)  # fmt: skip
def test_what_a_line_leaves_the_next_one_finds(box: Arena, lines: tuple[str, ...], told: str) -> None:
    assert seen(bash(box, *lines)) == ("ok", told)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("x=kept; exit 7", 7),
        ("x=kept; f() { exit 3; }; f", 3),
        ("set -e; x=kept; false; x=lost", 1),
        ("set -u; x=kept; echo $undefined", 127),
        ("x=kept; trap 'echo cleaned; exit 9' EXIT; exit 4", 9),
        ("x=kept; no-such-command", 127),
        ("x=kept; kill -TERM $$", 143),
    ],
)
def test_however_a_line_ends_its_exit_code_and_its_state_are_kept(box: Arena, line: str, code: int) -> None:
    ended = bash(box, line)
    assert ended.observation is not None
    assert (ended.observation.status, ended.observation.exit_code) == ("failed", code)
    assert "state" not in ended.observation.text
    assert seen(bash(box, "echo ${x-}", before=ended)) == ("ok", "kept\n")


def test_a_trap_at_the_end_belongs_to_its_call(box: Arena) -> None:
    first = bash(box, "trap 'echo \"bye $?\"' EXIT; (trap 'echo inner' EXIT); (exit 5)")
    assert seen(first) == ("failed", "inner\nbye 5\nexit code 5")
    assert seen(bash(box, "echo next", before=first)) == ("ok", "next\n")


def test_a_trace_shows_the_line_alone(box: Arena) -> None:
    status, text = seen(bash(box, "set -x", "echo hello"))
    assert (status, text) == ("ok", "hello\n+ builtin eval 'echo hello'\n++ echo hello\n")


@pytest.mark.parametrize("line", ["x=changed; sleep 60", "x=changed; exec true", "x=changed; kill -KILL $$"])
def test_a_shell_that_does_not_come_to_its_end_changes_nothing(box: Arena, line: str) -> None:
    limits = SMALL.model_copy(update={"wall_s": 2.0})
    ended = bash(box, "x=before", line, limits=limits)
    assert "[the shell's state: it is as it was before this call: the shell did not come to its end]" in seen(ended)[1]
    assert seen(bash(box, "echo $x", before=ended)) == ("ok", "before\n")


def test_errors_are_numbered_as_the_agents_lines(box: Arena) -> None:
    _, text = seen(bash(box, "true\nno-such-command\n"))
    assert text == "bash: line 2: no-such-command: command not found\nexit code 127"


def test_a_line_that_is_no_bash(box: Arena) -> None:
    ended = bash(box, "x=before", "if then")
    assert seen(ended)[0] == "failed"
    assert "syntax error" in seen(ended)[1]
    assert seen(bash(box, "echo $x", before=ended)) == ("ok", "before\n")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        ("echo 'x=forged' >> .longstride/bash", "was changed or is damaged"),
        ("truncate -s 100 .longstride/bash", "was changed or is damaged"),
        ("truncate -s 3M .longstride/bash", "was changed or is damaged"),
        ("rm .longstride/bash; ln -s /etc/passwd .longstride/bash", "leads out of the workspace"),
        ("rm .longstride/bash; mkdir .longstride/bash", "not a regular file"),
    ],
)
def test_a_spoilt_state_is_told_of_and_can_be_left_behind(box: Arena, spoil: str, why: str) -> None:
    first = bash(box, "x=1")
    spoilt = box.act("shell", workspace=first.workspace, tools=TOOLS, command=spoil)
    for _ in range(2):
        status, text = seen(bash(box, "echo $x", before=spoilt))
        assert status == "failed"
        assert why in text
        assert "restart" in text
    if "mkdir" not in spoil:
        assert seen(bash(box, "echo new${x-}", before=spoilt, restart=True)) == ("ok", "new\n")


def test_the_folder_can_be_removed_and_ignores_itself(box: Arena) -> None:
    first = bash(box, "x=1; rm -rf .longstride")
    assert seen(bash(box, "echo $x; git init -q . && git status --porcelain", before=first)) == ("ok", "1\n")


def test_something_in_the_folders_place(box: Arena) -> None:
    made = box.act("shell", tools=TOOLS, command="echo > .longstride")
    status, text = seen(bash(box, "true", before=made))
    assert status == "failed"
    assert "Move it away" in text


def test_a_state_that_is_too_large_is_not_kept(box: Arena) -> None:
    ended = bash(box, "x=before", "printf -v big %02000000d 0; x=after")
    assert "1048576 are the most" in seen(ended)[1]
    assert seen(bash(box, "echo $x ${#big}", before=ended)) == ("ok", "before 0\n")


def test_a_full_workspace_keeps_the_state_before(box: Arena) -> None:
    ended = bash(box, "x=before", "x=after; cat /dev/zero > fill")
    assert "as it was before this call" in seen(ended)[1]
    cleared = bash(box, "echo $x; rm fill", before=ended)
    assert seen(cleared) == ("ok", "before\n")


def test_an_unchanged_state_is_an_unchanged_workspace(box: Arena) -> None:
    first = bash(box, "x=1")
    again = bash(box, ": ", "true", "true", before=first)
    assert bash(box, "true", before=again).workspace == again.workspace


def test_what_holds_a_secret_is_not_kept(box: Arena) -> None:
    artifacts = MemoryArtifacts()
    workspaces = Workspaces(artifacts, box.backend.volumes)
    secrets = MemorySecrets({("default", "token"): b"s3cr't $value"})
    executor = Executor(box.backend, workspaces, artifacts, builtin_tools(), secrets)

    def call(line: str, before: ActionExecuted | None) -> ActionExecuted:
        command = ExecuteAction(
            step=1,
            action=Action(tool="bash", arguments={"command": line}),
            tools=TOOLS,
            workspace=before.workspace if before else None,
            limits=SMALL,
            isolation="process",
            secrets=("token",),
        )
        return executor.execute(command, task_id="task", session_id="session")

    try:
        first = call('T=$(cat /run/longstride/secrets/token); a=(x "Bearer $T"); plain=1', None)
        status, text = seen(first)
        assert status == "ok"
        assert "variable T is not kept: it holds secret token" in text
        assert "variable a is not kept: it holds secret token" in text
        assert seen(call('echo "${T-none} ${a[*]-none} $plain"', first)) == ("ok", "none none 1\n")
        assert not any(b"s3cr" in data for data in artifacts._objects.values())
    finally:
        workspaces.close()


def test_it_is_not_for_tasks_that_name_no_tools(box: Arena) -> None:
    assert seen(box.act("bash", command="true"))[0] == "denied"


def test_limits_are_the_tasks(box: Arena) -> None:
    limits = SandboxLimits(**{**SMALL.model_dump(), "wall_s": 2.0})
    ended = box.act("bash", tools=TOOLS, limits=limits, command="sleep 30")
    assert ended.observation is not None
    assert ended.observation.limit == "wall_s=2"


def test_the_script_is_part_of_the_package() -> None:
    patterns = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["tool"]["setuptools"][
        "package-data"
    ]["*"]
    assert "*.sh" in patterns
