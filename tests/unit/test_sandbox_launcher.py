"""The command line that starts a sandbox."""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from longstride.contracts.v1.environment import WORKSPACE
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import Owner
from longstride.sandbox.launcher import FAILED, SCRIPT, Launch, Programs, Start, argument_block, of_command, rlimits

LIMITS = SandboxLimits(disk_mb=2, cpu_s=3.5, memory_mb=64, processes=9)
ROOT = Programs("/usr/bin/bwrap", "/usr/bin/setpriv", "/usr/bin/prlimit")
USER = Programs("/usr/bin/bwrap", None, "/usr/bin/prlimit")


def launch(programs: Programs, owner: Owner | None) -> list[str]:
    return Launch(programs, ["/g/cgroup.procs"], owner, 7).command_line()


def script(*argv: str, nproc: str | None = None, **env: str) -> str:
    return os.fsdecode(Start(argv, env, LIMITS, nproc, hold_data=False).script())


def carried_out(tmp_path: Path, text: str) -> subprocess.CompletedProcess[bytes]:
    """By the shell, which reads it from its standard input; the workspace is a temporary folder."""
    told = os.fsencode(text.replace(WORKSPACE, str(tmp_path), 1))
    return subprocess.run(["/bin/sh"], input=told, capture_output=True, check=False, cwd="/", env={"PWD": "/"})


def test_root_drops_every_privilege_before_bwrap() -> None:
    line = launch(ROOT, Owner(1900000001, 1900000002))
    assert line.index("/usr/bin/setpriv") < line.index("/usr/bin/bwrap")
    for word in (
        "1900000001",
        "1900000002",
        "--clear-groups",
        "--no-new-privs",
        "--bounding-set=-all",
        "--inh-caps=-all",
    ):
        assert word in line
    assert line[-3:] == ["7", "--", "/bin/sh"]


def test_a_user_has_nothing_to_drop_and_limits_processes_inside(tmp_path: Path) -> None:
    assert "/usr/bin/setpriv" not in launch(USER, None)
    text = script("cat", "/proc/self/limits", nproc=shutil.which("prlimit"))
    limits = held(carried_out(tmp_path, text).stdout.decode())
    assert limits["Max processes"] == ["9", "9"]


def test_no_variable_reaches_what_limits_the_processes(tmp_path: Path) -> None:
    limiter = tmp_path / "limiter"
    limiter.write_text(f"#!/bin/sh\nenv > {tmp_path}/seen\necho $* > {tmp_path}/asked\n")
    limiter.chmod(0o755)
    done = carried_out(tmp_path, script("env", nproc=str(limiter), LD_PRELOAD="", SMUGGLED="in"))
    assert b"SMUGGLED=in" in done.stdout
    assert "SMUGGLED" not in (tmp_path / "seen").read_text()
    assert (tmp_path / "asked").read_text().endswith("--nproc=9\n")


def held(text: str) -> dict[str, list[str]]:
    """Soft and hard limits as /proc/self/limits shows them."""
    return {line[:25].strip(): line[25:].split()[:2] for line in text.splitlines()[1:]}


def test_the_launcher_joins_its_groups_and_lowers_the_limits_of_every_command(tmp_path: Path) -> None:
    entrance = tmp_path / "cgroup.procs"
    entrance.touch()
    line = launch(ROOT, None)
    start = [word.replace("/g/cgroup.procs", str(entrance)) for word in line[: line.index("/usr/bin/bwrap")]]
    done = subprocess.run([*start, "cat", "/proc/self/limits"], capture_output=True, text=True, check=True)
    assert entrance.read_text() == "0\n", "0 stands for the writer itself (cgroups(7))"
    limits = held(done.stdout)
    assert limits["Max core file size"] == ["0", "0"]
    assert int(limits["Max open files"][1]) <= 1024


def test_the_waiting_shell_lowers_the_commands_own_limits(tmp_path: Path) -> None:
    start = Start(("cat", "/proc/self/limits"), {}, LIMITS, None, hold_data=True)
    limits = held(carried_out(tmp_path, os.fsdecode(start.script())).stdout.decode())
    assert limits["Max file size"] == ["2097152", "2097152"]
    assert limits["Max cpu time"] == ["4", "4"]
    assert limits["Max data size"] == ["67108864", "67108864"]


def test_every_byte_but_nul_reaches_the_command(tmp_path: Path) -> None:
    everything = bytes(range(1, 256))
    code = "import os, sys; sys.stdout.buffer.write(os.fsencode(sys.argv[1]) + b'|' + os.environb[b'WORD'])"
    word = os.fsdecode(everything)
    done = carried_out(tmp_path, script(sys.executable, "-c", code, word, WORD=word))
    assert done.stdout == everything + b"|" + everything, done.stderr


def test_the_command_replaces_the_shell_in_the_workspace_with_nothing_to_read(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd(), sys.stdin.read(), sorted(os.environ), os.readlink('/proc/self/fd/0'))"
    done = carried_out(tmp_path, script(sys.executable, "-c", code, A="1"))
    assert done.stdout.decode() == f"{tmp_path}  ['A', 'LC_CTYPE', 'PWD'] /dev/null\n"


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("", "/bin:/own"),
        (":", "/bin:/own"),
        ("/opt/nothing", "/opt/nothing:/bin:/own"),
        ("/it's here:/b", "/it's here:/b:/bin:/own"),
        (":/a::/b:", "/a:/b:/bin:/own"),
        ("/app/bin:/usr/local/bin:/usr/bin:/bin", "/app/bin:/bin:/own"),
        ("/usr/local/bin:/usr/bin:/bin", "/bin:/own"),
    ],
)
def test_a_commands_path_never_hides_the_sandboxes_own(tmp_path: Path, path: str, seen: str) -> None:
    """Nor names the current directory, which an empty entry means (POSIX, 8.3)."""
    told = script("sh", "-c", 'echo "$PATH"', PATH=path).replace(WORKSPACE, str(tmp_path), 1)
    own = {"PATH": "/bin:/own"}
    done = subprocess.run(["/bin/sh"], input=told, capture_output=True, text=True, check=False, env=own)
    assert (done.stdout, done.stderr) == (f"{seen}\n", "")


def test_a_command_may_start_elsewhere(tmp_path: Path) -> None:
    elsewhere = tmp_path / "it's elsewhere"
    elsewhere.mkdir()
    told = Start(("pwd",), {}, LIMITS, None, hold_data=False, cwd=str(elsewhere)).script()
    done = subprocess.run(["/bin/sh"], input=told, capture_output=True, check=False, cwd="/")
    assert done.stdout.decode() == f"{elsewhere}\n"


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = carried_out(tmp_path, script("no-such-program"))
    assert done.returncode == 127
    assert b"no-such-program: not found" in done.stderr


@pytest.mark.parametrize("name", ["A B", "1A", "A=B", "", "É", "A;reboot"])
def test_a_variable_that_no_shell_can_set_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be an environment variable"):
        script("true", **{name: "x"})


def test_a_nul_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        script("echo", "a\0b")


def test_a_group_that_cannot_be_joined_stops_the_start(tmp_path) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", SCRIPT, "sh", str(tmp_path / "gone/cgroup.procs"), "--", "--", "echo", "ran"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (FAILED, "")


def test_a_hard_limit_that_is_lower_already_is_not_raised(monkeypatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (100, 100))
    flags = rlimits(of_command(LIMITS, hold_data=False))
    assert flags[flags.index("-t") + 1] == "4"
    assert flags[flags.index("-f") + 1] == "0", "100 bytes in units of 512"


def test_bwrap_reads_its_arguments_from_a_descriptor() -> None:
    descriptor = argument_block(["--bind", "/a b", "/c"])
    with os.fdopen(descriptor, "rb") as file:
        assert file.read() == b"--bind\0/a b\0/c\0"
