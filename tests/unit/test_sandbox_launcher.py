"""The command line that starts a sandbox."""

import os
import resource
import subprocess

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import Owner
from longstride.sandbox.launcher import FAILED, SCRIPT, Launch, Programs, argument_block, rlimits

LIMITS = SandboxLimits(disk_mb=2, cpu_s=3.5, memory_mb=64, processes=9)
ROOT = Programs("/usr/bin/bwrap", "/usr/bin/setpriv", "/usr/bin/prlimit")
USER = Programs("/usr/bin/bwrap", None, "/usr/bin/prlimit")


def launch(programs: Programs, owner: Owner | None, *, grouped: bool) -> list[str]:
    return Launch(programs, ["/g/cgroup.procs"], owner, LIMITS, 7, ["echo", "hi"], grouped).command_line()


def test_root_drops_every_privilege_before_bwrap() -> None:
    line = launch(ROOT, Owner(1900000001, 1900000002), grouped=True)
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
    assert line[-4:] == ["7", "--", "echo", "hi"]


def test_a_user_has_nothing_to_drop_and_limits_processes_inside() -> None:
    line = launch(USER, None, grouped=False)
    assert "/usr/bin/setpriv" not in line
    assert line[-5:] == ["/usr/bin/prlimit", "--nproc=9", "--", "echo", "hi"]


def test_the_launcher_joins_its_groups_and_lowers_its_limits(tmp_path) -> None:
    entrance = tmp_path / "cgroup.procs"
    entrance.touch()
    flags = rlimits(LIMITS, grouped=False)
    done = subprocess.run(
        ["/bin/sh", "-c", SCRIPT, "sh", str(entrance), "--", *flags, "--", "cat", "/proc/self/limits"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert entrance.read_text() == "0\n", "0 stands for the writer itself (cgroups(7))"
    limits = {line[:25].strip(): line[25:].split()[:2] for line in done.stdout.splitlines()[1:]}
    assert limits["Max file size"] == ["2097152", "2097152"]
    assert limits["Max core file size"] == ["0", "0"]
    assert limits["Max cpu time"] == ["4", "4"]
    assert limits["Max data size"] == ["67108864", "67108864"]
    assert int(limits["Max open files"][1]) <= 1024


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
    flags = rlimits(LIMITS, grouped=True)
    assert flags[flags.index("-n") + 1] == "100"


def test_bwrap_reads_its_arguments_from_a_descriptor() -> None:
    descriptor = argument_block(["--bind", "/a b", "/c"])
    with os.fdopen(descriptor, "rb") as file:
        assert file.read() == b"--bind\0/a b\0/c\0"
