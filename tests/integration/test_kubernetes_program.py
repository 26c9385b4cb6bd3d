"""The program that an executor sends into a pod, in namespaces of this machine: its first process is the template's own."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from longstride.sandbox.kubernetes import program
from longstride.sandbox.kubernetes.cell import ARGV, asked
from longstride.sandbox.kubernetes.program import MARK
from tests.support.eventually import eventually

TEMPLATE = Path(__file__).parents[2] / "infra/kubernetes/sandboxes/gvisor.yaml"
USER = 65534
LIMITS = {"RLIMIT_CORE": 0, "RLIMIT_NOFILE": 256, "RLIMIT_FSIZE": 1 << 20, "RLIMIT_CPU": 5}


class Pod:
    """A container as a runtime makes it, by bubblewrap and nsenter: the template's first process, and commands beside it."""

    def __init__(self, workspace: Path) -> None:
        template = next(yaml.safe_load_all(TEMPLATE.read_text()))["spec"]["podTemplate"]["spec"]["containers"][0]
        usr = ["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        links = [word for name in ("bin", "lib", "lib64") for word in ("--symlink", f"usr/{name}", f"/{name}")]
        shown = [*usr, *links, "--bind", str(workspace), "/workspace", "--dir", "/run/longstride"]
        report, told = os.pipe()
        self._process = subprocess.Popen(
            [
                "bwrap",
                "--unshare-pid",
                "--unshare-net",
                "--as-pid-1",
                *shown,
                "--info-fd",
                str(told),
                "--",
                *template["command"],
            ],
            pass_fds=[told],
            start_new_session=True,
        )
        os.close(told)
        with os.fdopen(report) as file:
            self._first = str(json.load(file)["child-pid"])
        assert eventually(lambda: Path(f"/proc/{self._first}/comm").read_text() == "sleep\n"), "it waits"
        self._enter = [
            "nsenter",
            "--target",
            self._first,
            "--pid",
            "--mount",
            "--net",
            f"--setuid={USER}",
            f"--setgid={USER}",
        ]

    def shell(self, script: str) -> subprocess.CompletedProcess[bytes]:
        """A command that no executor knows of."""
        return subprocess.run([*self._enter, "/bin/sh", "-c", script], capture_output=True, timeout=60, env={})

    def do(self, request: dict[str, Any], mark: bool = True) -> subprocess.CompletedProcess[bytes]:
        """As the API server's exec: argv, standard input, both outputs, exit code."""
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "KUBERNETES_SERVICE_HOST": "10.0.0.1",
            **({MARK: "pod"} if mark else {}),
        }
        return subprocess.run(
            [*self._enter, *ARGV],
            input=asked(request),
            capture_output=True,
            timeout=60,
            env=environment,
            start_new_session=True,
        )

    def run(
        self, *argv: str, cpu_s: float = 5.0, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """A command of the agent's."""
        environment = {"PATH": "/usr/bin:/bin", **(env or {})}
        named = {"argv": argv, "env": environment, "cwd": "/workspace", "rlimits": LIMITS, "cpu_s": cpu_s}
        return self.do({"do": "run", **named})

    def look(self, sweep: bool = True) -> dict[str, Any]:
        """The counters."""
        done = self.do({"do": "look", "sweep": sweep, "workspace": "/workspace", "entries": 10, "bytes": 1 << 20})
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def close(self) -> None:
        """The first process takes the others along."""
        self._process.kill()
        self._process.wait()


@pytest.fixture
def pod(tmp_path: Path) -> Any:
    if os.geteuid() != 0 or shutil.which("bwrap") is None or shutil.which("nsenter") is None:
        pytest.skip("needs root, bwrap and nsenter")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    os.chown(workspace, USER, USER)
    made = Pod(workspace)
    yield made
    made.close()


def test_a_command_runs_with_its_own_environment_limits_and_input(pod: Pod) -> None:
    done = pod.run("sh", "-c", "cat; env | sort; pwd; ulimit -n; echo bad >&2; exit 7", env={"WHO": "é"})
    assert done.returncode == 7
    assert done.stdout.decode().split("\n")[:-1] == [
        "PATH=/usr/bin:/bin",
        "PWD=/workspace",
        "WHO=é",
        "/workspace",
        "256",
    ]
    assert done.stderr == b"bad\n"


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("no-such-program",), 127),
        (("/workspace",), 126),
        (("sh", "-c", "kill -9 $$"), 137),
        (("false",), 1),
        (("true",), 0),
    ],
)
def test_exit_codes_are_a_shells(pod: Pod, argv: tuple[str, ...], code: int) -> None:
    assert pod.run(*argv).returncode == code


def test_what_a_command_leaves_behind_does_not_hold_its_output_open(pod: Pod) -> None:
    """Daemons in sessions of their own, ignoring what can be ignored; the call would otherwise wait for them."""
    done = pod.run("sh", "-c", "for i in 1 2 3; do (trap '' TERM HUP INT; setsid sleep 600 &); done; echo told")
    assert (done.returncode, done.stdout) == (0, b"told\n")
    assert pod.look(sweep=False)["processes"] == 0


def test_a_sweep_ends_everything_and_leaves_the_first_process(pod: Pod) -> None:
    spawn = "while :; do (setsid sleep 600 &) ; done & sleep 0.3; kill $!"
    subprocess.run([*pod._enter, "/bin/sh", "-c", f"({spawn}) >/dev/null 2>&1"], timeout=30, env={}, check=False)
    assert pod.look(sweep=False)["processes"] > 5
    assert pod.look()["processes"] == 0
    assert pod.run("echo", "still there").stdout == b"still there\n"


def test_a_command_that_burns_cpu_is_ended_by_the_kernel(pod: Pod) -> None:
    done = pod.do(
        {
            "do": "run",
            "argv": ["sh", "-c", "while :; do :; done"],
            "env": {"PATH": "/usr/bin:/bin"},
            "cwd": "/workspace",
            "rlimits": {"RLIMIT_CPU": 1},
            "cpu_s": 1000.0,
        }
    )
    assert done.returncode in (137, 152), "SIGKILL or SIGXCPU"


def test_a_file_has_its_largest_size(pod: Pod, tmp_path: Path) -> None:
    assert pod.run("sh", "-c", "exec head -c 3000000 /dev/zero > big").returncode == 153, "SIGXFSZ"
    assert (tmp_path / "workspace/big").stat().st_size == 1 << 20


def test_stopped_processes_go_on_again(pod: Pod) -> None:
    pod.shell("(while :; do echo . >> /workspace/beats; done) >/dev/null 2>&1 &")
    assert pod.do({"do": "signal", "signal": "SIGSTOP"}).returncode == 0
    state = "cat /proc/[0-9]*/stat | grep -c ') T '"
    assert int(pod.shell(state).stdout) >= 1
    assert pod.do({"do": "signal", "signal": "SIGCONT"}).returncode == 0
    assert int(pod.shell(state).stdout) == 0
    assert pod.look()["processes"] == 0


def test_a_look_counts_what_lies_in_the_workspace(pod: Pod, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"workspace/{number}").write_bytes(bytes(8192))
    told = pod.look()
    assert (told["entries"], told["bytes"], told["full"], told["no_inodes"]) == (3, 3 * 8192, False, False)


def test_a_workspace_goes_up_and_comes_down(pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "workspace/a").write_text("content")
    os.chown(tmp_path / "workspace/a", USER, USER)
    (tmp_path / "workspace/a").chmod(0o000)
    done = pod.do({"do": "fetch", "root": "/workspace"})
    assert done.returncode == 0, done.stderr
    head, _, rest = done.stdout.partition(b"\n")
    assert json.loads(head) | {"mtime_ns": 0} == {"kind": "file", "path": "a", "mode": 0, "size": 7, "mtime_ns": 0}
    assert rest.startswith(b"content{")


@pytest.mark.parametrize("request_", [{"do": "signal", "signal": "SIGKILL"}, {"do": "look", "sweep": True}])
def test_without_the_templates_mark_no_signal_is_sent(pod: Pod, request_: dict[str, Any]) -> None:
    """Whatever runs it on a machine that is no pod loses nothing."""
    pod.shell("(sleep 600) >/dev/null 2>&1 &")
    done = pod.do(request_, mark=False)
    assert done.returncode == program.FAILED
    assert b"LONGSTRIDE_SANDBOX is not 'pod'" in done.stderr
    assert pod.shell("cat /proc/[0-9]*/comm | grep -c sleep").stdout == b"2\n", "the first process, and this one"
