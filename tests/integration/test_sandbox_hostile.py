"""Code that means harm: each payload must stay contained, seen from outside, and the executor must serve the next call.

On every backend that runs here; bubblewrap is the one that must. Payloads that only ask for something share a sandbox, each in
a process of its own; those that take, stay or break have one each.
"""

import errno
import os
import re
import resource
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import Command, Execution, Sandbox, Spec
from longstride.sandbox.oci import OVERHEAD
from longstride.sandbox.pool import Pool
from tests.support import leaks, outside
from tests.support.engine import engine
from tests.support.eventually import eventually
from tests.support.sandboxes import SMALL, Arena, arena, processes_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the whole recipe needs root")

SECRET = "correct-horse-battery-staple"
CALL = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in arguments])
    return "allowed" if result >= 0 else errno.errorcode[ctypes.get_errno()]
"""


BACKENDS = ("bubblewrap", "pool", "runc", "docker", "runsc", "docker-runsc")
gvisor_once = pytest.mark.parametrize("box", BACKENDS[:-1], indirect=True, scope="module")
"""For payloads that meet nothing on docker-runsc but the same gVisor as on runsc, and are answered without our filter, too."""


@dataclass(frozen=True)
class Kernel:
    """Which kernel answers the code inside, and what is said of it outside.

    | asked for                   | the host's, filtered | gVisor's, filtered | gVisor's alone                       |
    |-----------------------------|----------------------|--------------------|--------------------------------------|
    | a call that is not allowed  | EPERM                | EPERM or ENOSYS    | an error, or ``OWN``: then no host's |
    | a call that is not there    | ENOSYS               | ENOSYS             | an error                             |
    | a file of the host          | no such file         | the same, or one of gVisor's own of that name             |
    | more memory, processes      | the limit            | the limit, and up to gVisor's own above it on the host    |

    Whatever the answer, ``outside.unharmed`` looks at the host after each test, and at what runs there in
    ``test_what_runs_is_confined_as_the_host_sees_it``.
    """

    gvisor: bool = False
    filtered: bool = True
    memory_mb: int = 0
    """Its own, above the limit."""
    processes: int = 2
    """Its own, or its launcher's."""

    def refuses(self, call: str) -> set[str]:
        """What a call that is not allowed may be answered."""
        if not self.gvisor:
            return {"EPERM"}
        alone = set() if self.filtered else GVISORS_ERRORS | ({"allowed"} if call in OWN else set())
        return {"EPERM", "ENOSYS"} | alone


GVISORS_ERRORS = {"EACCES", "EINVAL", "ENODEV", "ENOTSUP"}
OWN = {
    "unshare user": "ids of gVisor's kernel; its processes keep the one they have on the host",
    "clone user": "the same",
    "unshare mount": "mounts of gVisor's kernel, of what it was given",
    "syslog": "a log that gVisor makes up",
}


@pytest.fixture(scope="module")
def docker_engine() -> Iterator[str]:
    with engine() as address:
        yield address


@pytest.fixture(scope="module", params=BACKENDS)
def box(request: pytest.FixtureRequest) -> Iterator[Arena]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param.startswith("docker"):
            patch.setenv("DOCKER_HOST", request.getfixturevalue("docker_engine"))
        with arena(name=request.param) as made:
            yield made


@pytest.fixture(scope="module")
def kernel(box: Arena) -> Kernel:
    found = box.backend.capabilities()
    if "gvisor" not in found.isolation:
        return Kernel()
    own = OVERHEAD["runsc"]
    filtered = any("system call filter" in what for what in found.enforced)
    return Kernel(gvisor=True, filtered=filtered, memory_mb=own.memory_mb, processes=own.processes)


@pytest.fixture(autouse=True)
def nothing_left_running(box: Arena) -> Iterator[None]:
    """What waits in a pool is replaced during a test: ``left_over`` counts it."""
    with nullcontext() if isinstance(box.backend, Pool) else leaks.none_left():
        yield


@pytest.fixture(autouse=True)
def the_next_call_is_served(box: Arena, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LONGSTRIDE_SECRET", SECRET)
    if isinstance(box.backend, Pool):
        eventually(lambda: box.backend.level.ready > 0)
    with outside.unharmed():
        yield
        told = box.act("shell", command="echo still here", task="next")
    assert told.observation is not None
    assert (told.observation.status, told.observation.text) == ("ok", "still here\n")
    eventually(lambda: box.left_over() == set())


@contextmanager
def meanwhile(box: Arena, code: str) -> Iterator[None]:
    """While a program runs, from when it has made the file ``ready`` on."""
    cancelled = threading.Event()
    with box.volume() as volume:
        command = Command(("python3", "-c", f"{code}\nopen('ready', 'w'); import time; time.sleep(30)"), volume, SMALL)
        program = threading.Thread(target=lambda: box.backend.run(command, cancelled))
        program.start()
        try:
            eventually((volume.path / "ready").exists)
            yield
        finally:
            cancelled.set()
            program.join()


def seen_at_rest(box: Arena) -> list[outside.Seen]:
    """What runs in its sandboxes; none while one is being made, as a pool does when it gave one away."""
    if not isinstance(box.backend, Pool):
        return outside.processes(box.groups())
    before, seen, after = box.backend.level, outside.processes(box.groups()), box.backend.level
    return seen if before == after and before.ready == before.target else []


def limits(**changes: object) -> SandboxLimits:
    return SMALL.model_validate({**SMALL.model_dump(), **changes})


def said(execution: Execution) -> str:
    return execution.stdout.decode(errors="replace") + execution.stderr.decode(errors="replace")


# -- too much of something ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bomb",
    [
        ":(){ :|:& };:; wait",
        "while :; do (sleep 30 &) ; done",
        "python3 -c 'import os, time\nfor i in range(200):\n try: os.fork()\n except OSError: time.sleep(0.01)'",
    ],
)
def test_fork_bomb(box: Arena, kernel: Kernel, bomb: str) -> None:
    bounds = limits(wall_s=5 if "os.fork" in bomb else 1, processes=20)
    most = 0
    with box.volume(bounds) as volume:
        done = threading.Event()

        def count() -> None:
            nonlocal most
            while not done.wait(0.05):
                most = max(most, outside.most_tasks(box.groups()))

        watcher = threading.Thread(target=count)
        watcher.start()
        box.backend.run(Command(("/bin/bash", "-c", bomb), volume, bounds))
        done.set()
        watcher.join()
        assert processes_of(volume) == []
    assert box.shell("echo alive").stdout == b"alive\n", "the next call is served, however bash gave up"
    assert most <= 20 + kernel.processes
    assert most > 4 or "os.fork" not in bomb, "bash may be too quick to be seen"


GREED = {
    "heap": "x = bytearray(1 << 30)",
    "mapping": "import mmap; m = mmap.mmap(-1, 1 << 30)\nfor i in range(0, 1 << 30, 4096): m[i] = 1",
    "memfd": "import os; f = os.memfd_create('m')\nwhile 1: os.write(f, bytes(1 << 20))",
    "shm": "f = open('/dev/shm/f', 'wb')\nwhile 1: f.write(bytes(1 << 20)); f.flush()",
    "tmp": "f = open('/tmp/f', 'wb')\nwhile 1: f.write(bytes(1 << 20)); f.flush()",
    "sysv": "import ctypes; l = ctypes.CDLL(None); l.shmat.restype = ctypes.c_void_p\n"
    "i = l.shmget(0, 1 << 28, 0o1600); p = l.shmat(i, 0, 0); ctypes.memset(p, 1, 1 << 28)",
    "many processes": "import os, time\nfor i in range(12):\n"
    "    if not os.fork(): x = bytearray(16 << 20); time.sleep(3); os._exit(0)\n"
    "while 1:\n    try: os.wait()\n    except ChildProcessError: exit(1)",
}


@pytest.mark.parametrize("greed", GREED.values(), ids=GREED)
def test_memory_bomb(box: Arena, kernel: Kernel, greed: str) -> None:
    execution = box.python(greed, limits(memory_mb=64, disk_mb=512, wall_s=30))
    assert execution.status == "limit"
    assert execution.limit == "memory_mb=64"
    most = 64 + kernel.memory_mb + 1 if kernel.gvisor else 64
    assert execution.usage.max_memory_mb <= most, "gVisor asks for some pages when it is full"


def test_disk_fill(box: Arena) -> None:
    execution = box.shell("cat /dev/zero > a || cat /dev/zero > b; ls -l >&2; exit 1")
    assert (execution.status, execution.limit) == ("limit", "disk_mb=8")


@gvisor_once
def test_many_files_that_fill_the_disk_together(box: Arena) -> None:
    execution = box.shell("for i in $(seq 100); do head -c 1M /dev/zero > f$i || exit 1; done")
    assert (execution.status, execution.limit) == ("limit", "disk_mb=8")


@pytest.mark.parametrize("where", [".", "/tmp", "/dev/shm"])
def test_inode_flood(box: Arena, where: str) -> None:
    execution = box.python(f"for i in range(10**6): open(f'{where}/{{i}}', 'w')")
    assert (execution.status, execution.limit) == ("limit", "files=500")


@gvisor_once
def test_sparse_file_of_a_terabyte(box: Arena) -> None:
    told = box.act("shell", command="truncate -s 1T sparse")
    assert told.observation is not None
    assert (told.observation.status, told.observation.limit) == ("limit", "disk_mb=8")


def test_cpu_burn_on_more_cores_than_allowed(box: Arena) -> None:
    started = time.monotonic()
    execution = box.shell("for i in 1 2 3 4; do (while :; do :; done) & done; wait", limits(cpu_s=1, cpus=1))
    assert (execution.status, execution.limit) == ("limit", "cpu_s=1")
    assert execution.usage.cpu_ms < 2000
    assert time.monotonic() - started >= 0.9, "one core gives one second of CPU a second"


@gvisor_once
def test_descriptor_flood(box: Arena) -> None:
    code = "import os\nn = 0\ntry:\n    while 1: os.dup(0); n += 1\nexcept OSError as e: print(n, e.errno)"
    count, code_ = said(box.python(code)).split()
    assert int(count) <= 1024
    assert int(code_) == errno.EMFILE


@gvisor_once
def test_directories_twenty_thousand_deep(box: Arena) -> None:
    first = box.act("write_file", path="kept", content="kept", limits=limits(files=30_000, disk_mb=64), task="deep")
    code = "import os\nfor i in range(20000): os.mkdir('d'); os.chdir('d')"
    told = box.act("python", code=code, workspace=first.workspace, limits=limits(files=30_000, disk_mb=64), task="deep")
    assert told.observation is not None
    assert told.observation.status == "limit"
    assert "nested more than 64 deep" in told.observation.text
    assert told.workspace == first.workspace
    after = box.act("shell", command="ls", workspace=told.workspace, task="deep")
    assert after.observation is not None
    assert after.observation.text == "kept\n"


@gvisor_once
def test_a_path_longer_than_a_restore_could_make(box: Arena) -> None:
    first = box.act("write_file", path="kept", content="kept", task="long")
    code = "import os\nfor i in range(16): os.mkdir('d' * 245); os.chdir('d' * 245)\nopen('x', 'w')"
    told = box.act("python", code=code, workspace=first.workspace, task="long")
    assert told.observation is not None
    assert told.observation.status == "limit"
    assert "a path in it is longer than 3800 bytes" in told.observation.text
    assert told.workspace == first.workspace
    after = box.act("shell", command="ls", workspace=told.workspace, task="long")
    assert after.observation is not None
    assert after.observation.text == "kept\n"


def test_endless_output(box: Arena) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    execution = box.shell("echo begun; yes & yes >&2", limits(output_mb=2))
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (execution.status, execution.limit, execution.exit_code) == ("limit", "output_mb=2", None)
    assert execution.usage.wall_ms < SMALL.wall_s * 1e3 / 2
    assert execution.written == 2 << 20
    assert execution.stdout.startswith(b"begun\ny\ny\n")
    assert len(execution.stdout) + len(execution.stderr) < SMALL.output_bytes + 200
    assert grown_kib < 30_000


@gvisor_once
def test_endless_bytes_that_are_no_text(box: Arena) -> None:
    told = box.act("shell", command="cat /dev/zero", limits=limits(output_mb=1)).observation
    assert told is not None
    assert (told.status, told.limit) == ("limit", "output_mb=1")
    assert "most of them not text" in told.text
    assert re.search(r"stopped by output_mb=1 after .* and \d\.\d MiB of output", told.text)


def test_much_output_below_the_limit_runs_to_its_end(box: Arena) -> None:
    """More than is shown, and more than is kept."""
    execution = box.shell("yes | head -c 1000000; echo last", limits(output_mb=1))
    assert (execution.status, execution.exit_code, execution.written) == ("ok", 0, 1_000_005)
    assert execution.stdout.endswith(b"last\n")


@pytest.mark.parametrize(
    "command", ["head -c 1048577 /dev/zero", "head -c 3000000 /dev/zero & wait", "head -c 2000000 /dev/zero >&2"]
)
def test_output_is_counted_to_the_byte_however_fast_it_is_written(box: Arena, command: str) -> None:
    """A budget of the task is never passed, not even by what was read at once, or after the end."""
    execution = box.shell(command, limits(output_mb=1))
    assert (execution.status, execution.limit, execution.written) == ("limit", "output_mb=1", 1 << 20)
    execution = box.shell("head -c 1048576 /dev/zero", limits(output_mb=1))
    assert (execution.status, execution.exit_code, execution.written) == ("ok", 0, 1 << 20)


def test_a_killed_writer_does_not_block_its_end(box: Arena) -> None:
    """Nobody reads a pipe that the dead command left; its last words are there."""
    execution = box.shell("head -c 60000 /dev/zero | tr '\\0' x; echo; echo last; kill -9 $$")
    assert execution.exit_code == 137
    assert execution.stdout.endswith(b"last\n")


# -- seeing and reaching the host ---------------------------------------------------------------------------------------


def test_no_file_of_the_host_is_there(box: Arena, kernel: Kernel, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    tmp_path.chmod(0o755)
    paths = [
        str(tmp_path / "secret"),
        str(Path(__file__).resolve()),
        "/root",
        "/home",
        "/etc/shadow",
        "/var/lib",
        "/sys/kernel",
    ]
    others = ["/proc/1/root/etc/shadow", "/proc/1/root/root", "/proc/1/cwd/etc/shadow"]
    code = (
        "import errno, os, sys\n"
        "for path in sys.argv[1:]:\n"
        "    try: print(path, (os.listdir if os.path.isdir(path) else os.stat)(path))\n"
        "    except OSError as e: print(path, errno.errorcode[e.errno])"
    )
    execution = box.run(("python3", "-c", code, *paths, *others))
    told = dict(line.split(maxsplit=1) for line in said(execution).splitlines())
    own = {"/sys/kernel": "[]", **dict.fromkeys(others, "EACCES")} if kernel.gvisor else {}
    assert set(told) == {*paths, *others}
    assert {path: answer for path, answer in told.items() if answer not in ("ENOENT", own.get(path))} == {}


def test_the_hosts_environment_is_nowhere(box: Arena) -> None:
    assert os.environ["LONGSTRIDE_SECRET"] == SECRET
    execution = box.shell("env; cat /proc/*/environ /proc/*/cmdline /proc/*/task/*/environ | tr '\\0' '\\n'")
    assert SECRET not in said(execution)
    assert "AGENT_VISIBLE" not in said(execution)
    assert not re.search(r"/var/lib|volume-|run-\d", said(execution)), "nor do paths of the host show"


def test_no_process_of_the_host_is_seen(box: Arena) -> None:
    pids = said(box.shell("ls /proc | grep -E '^[0-9]+$'")).split()
    assert len(pids) < 8
    assert str(os.getpid()) not in pids or os.getpid() < 8


def test_only_three_descriptors_are_inherited(box: Arena) -> None:
    code = "import os; print(sorted(int(f) for f in os.listdir('/proc/self/fd'))[:-1])"
    assert said(box.python(code)) == "[0, 1, 2]\n"


def test_no_device_is_there_and_none_can_be_made(box: Arena, kernel: Kernel) -> None:
    devices = "kmsg mem port kvm fuse vda sda loop-control userfaultfd vsock"
    told = said(
        box.shell(
            f"for d in {devices}; do test -e /dev/$d && echo $d; done; "
            "for at in /tmp/d d; do mknod $at c 1 11 && echo made; mknod $at b 8 0 && echo made; done 2>/dev/null"
        )
    ).split()
    assert set(told) <= ({"fuse"} if kernel.gvisor else set()), "gVisor's is one of its own, and is no host's"


def test_nothing_of_the_system_can_be_written(box: Arena, kernel: Kernel) -> None:
    paths = [
        *(
            "/proc/sysrq-trigger",
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/hostname",
            "/proc/sys/vm/drop_caches",
        ),
        *("/usr/bin/owned", "/usr/owned", "/etc/passwd", "/lib/owned", "/owned", "/dev/owned", "/run/longstride/owned"),
        *("/proc/1/oom_score_adj", "/proc/self/oom_score_adj", "/proc/1/mem"),
    ]
    code = (
        "import errno, sys\n"
        "for path in sys.argv[1:]:\n"
        "    try: open(path, 'r+' if 'passwd' in path else 'w').write('-1000'); print(path, 'written')\n"
        "    except OSError as e: print(path, errno.errorcode[e.errno])"
    )
    told = dict(line.split() for line in said(box.run(("python3", "-c", code, *paths))).splitlines())
    refused = ("EROFS", "EACCES", "EPERM", "ENOENT", "EIO")
    own = {path for path in paths if path.endswith("oom_score_adj")} if kernel.gvisor else set()
    assert kernel.gvisor or told["/proc/self/oom_score_adj"] == "EROFS"
    assert set(told) == set(paths)
    assert {path: answer for path, answer in told.items() if answer not in refused and path not in own} == {}


def test_what_runs_is_confined_as_the_host_sees_it(box: Arena, kernel: Kernel) -> None:
    """After it took all that a kernel of its own may have let it have."""
    code = CALL + (
        "for path in ('/proc/self/oom_score_adj', '/proc/1/oom_score_adj'):\n"
        "    try: open(path, 'w').write('-1000')\n"
        "    except OSError: pass\n"
        "for number, flags in ((272, 0x10000000), (272, 0x20000), (272, 0x40000000), (272, 0x04000000)): call(number, flags)\n"
        "call(157, 4, 1); call(157, 38, 0); call(317, 1, 0, 0)"
    )
    with meanwhile(box, code):
        seen = eventually(lambda: seen_at_rest(box))
    inside = [process for process in seen if not process.builds]
    assert len(inside) >= 2
    assert [process for process in seen if process.oom_score_adj < 1] == [], (
        "the host itself must not be chosen before them"
    )
    assert [process for process in inside if process.shared & outside.SEPARATE] == []
    assert [process for process in inside if not (process.filtered and process.no_new_privileges)] == []
    powerful = [process for process in inside if process.capabilities & outside.SYS_ADMIN]
    assert [process for process in powerful if "user" in process.shared or not kernel.gvisor] == []
    assert kernel.gvisor or not any(process.capabilities or process.uid == 0 for process in inside)
    assert kernel.gvisor == any("runsc-sandbox" in process.name for process in seen), (
        "its kernel is a process of the host"
    )


def test_hidden_files_of_proc_are_empty(box: Arena, kernel: Kernel) -> None:
    told = said(box.shell("cat /proc/kallsyms /proc/cmdline /proc/keys /proc/iomem /proc/timer_list 2>/dev/null"))
    assert Path("/proc/cmdline").read_text() not in told
    assert told == "" or (kernel.gvisor and re.fullmatch(r"BOOT_IMAGE=\S*gvisor quiet\n", told)), "it makes one up"


# -- becoming somebody else ---------------------------------------------------------------------------------------------


def test_no_privilege_can_be_had(box: Arena, kernel: Kernel) -> None:
    code = CALL + "for n, a in ((105, 0), (106, 0), (117, 0), (126, 0)): print(call(n, a, a, a))\nprint(os.getresuid())"
    execution = box.python(code)
    assert re.search(r"^\(([1-9]\d*), \1, \1\)$", said(execution), re.MULTILINE)
    assert "(0," not in said(execution)
    status = said(box.shell("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; id -u"))
    assert set(re.findall(r"Cap\w+:\s+(\w+)", status)) == {"0" * 16}
    assert "NoNewPrivs:\t1" in status or kernel.gvisor, "an old one shows none"
    assert ("Seccomp:\t2" in status) == kernel.filtered


@gvisor_once
def test_set_uid_programs_give_nothing(box: Arena) -> None:
    programs = ("su -c id", "mount", "passwd -S root", "newgrp root", "chsh -s /bin/sh root")
    told = said(box.shell("".join(f"({program}) </dev/null; id; " for program in programs)))
    users = re.findall(r"^uid=(\d+)", told, re.MULTILINE)
    assert len(users) == len(programs)
    assert "0" not in users


REFUSED = (
    ("mount", 165, (0, 0, 0, 0, 0)),
    ("umount2", 166, (0, 0)),
    ("pivot_root", 155, (0, 0)),
    ("chroot", 161, (0,)),
    ("fsopen", 430, (0, 0)),
    ("open_tree", 428, (-100, 0, 0)),
    ("move_mount", 429, (0, 0, 0, 0, 0)),
    ("mount_setattr", 442, (-100, 0, 0, 0, 0)),
    ("open_by_handle_at", 304, (-100, 0, 0)),
    ("unshare user", 272, (0x10000000,)),
    ("unshare mount", 272, (0x20000,)),
    ("setns", 308, (0, 0)),
    ("clone user", 56, (0x10000000 | 17, 0, 0, 0, 0)),
    ("ptrace", 101, (16, 1, 0, 0)),
    ("process_vm_readv", 310, (1, 0, 0, 0, 0, 0)),
    ("pidfd_getfd", 438, (0, 0, 0)),
    ("keyctl", 250, (0, -3, 1)),
    ("add_key", 248, (0, 0, 0, 0, -3)),
    ("bpf", 321, (0, 0, 0)),
    ("perf_event_open", 298, (0, 0, -1, -1, 0)),
    ("userfaultfd", 323, (0,)),
    ("kexec_load", 246, (0, 0, 0, 0)),
    ("init_module", 175, (0, 0, 0)),
    ("reboot", 169, (0xFEE1DEAD, 672274793, 0, 0)),
    ("settimeofday", 164, (0, 0)),
    ("sethostname", 170, (0, 0)),
    ("swapon", 167, (0, 0)),
    ("syslog", 103, (3, 0, 0)),
    ("acct", 163, (0,)),
    ("quotactl", 179, (0, 0, 0, 0)),
    ("fanotify_init", 300, (0, 0)),
    ("iopl", 172, (3,)),
)
ABSENT = (
    ("clone3", 435, (0,) * 6),
    ("io_uring_setup", 425, (0,) * 6),
    ("io_uring_enter", 426, (0,) * 6),
    ("memfd_secret", 447, (0,) * 6),
    ("future", 600, (0,) * 6),
)
ASK = (
    CALL
    + """
for name, number, arguments in {table!r}:
    if not os.fork():
        print(name, call(number, *arguments), sep=":", flush=True)
        os._exit(0)
    os.wait()
"""
)


def test_calls_into_the_kernel_are_refused(box: Arena, kernel: Kernel) -> None:
    told = dict(line.split(":") for line in said(box.python(ASK.format(table=REFUSED))).splitlines())
    assert set(told) == {name for name, *_ in REFUSED}
    assert {name: answer for name, answer in told.items() if answer not in kernel.refuses(name)} == {}


def test_calls_that_do_not_exist_here(box: Arena, kernel: Kernel) -> None:
    told = dict(line.split(":") for line in said(box.python(ASK.format(table=ABSENT))).splitlines())
    assert set(told) == {name for name, *_ in ABSENT}
    answers = {"ENOSYS"} if kernel.filtered else kernel.refuses("absent")
    assert {name: answer for name, answer in told.items() if answer not in answers} == {}


def test_threads_and_processes_work_all_the_same(box: Arena) -> None:
    code = (
        "import threading, subprocess, multiprocessing as m, socket\n"
        "t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n"
        "print(subprocess.run(['echo', 'process'], capture_output=True, text=True).stdout, end='')\n"
        "with m.get_context('fork').Pool(2) as p: print(p.map(abs, [-1, -2]))\n"
        "a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))\n"
        "s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); print('loopback')\n"
    )
    assert said(box.python(code)) == "thread\nprocess\n[1, 2]\nb'x'\nloopback\n"


def test_32_bit_calls_get_nothing(box: Arena, kernel: Kernel) -> None:
    """``mov eax, 20; int 0x80; ret``: getpid by the old gate, where x86-64's filter would not see the number.

    gVisor takes it for the number that x86-64 means by it, and so does its filter.
    """
    code = (
        "import ctypes, mmap\n"
        "m = mmap.mmap(-1, 4096, prot=7); m.write(bytes.fromhex('b814000000cd80c3'))\n"
        "f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))\n"
        "print('before', flush=True); print('pid' if f() > 0 else 'refused')"
    )
    execution = box.python(code)
    killed = (execution.exit_code, said(execution)) == (128 + 31, "before\n")
    assert killed or (kernel.gvisor and "pid" not in said(execution)), "SIGSYS"


def test_a_terminal_cannot_be_typed_into(box: Arena, kernel: Kernel) -> None:
    code = (
        "import fcntl, pty, os, termios\n"
        "master, slave = pty.openpty()\n"
        "try: fcntl.ioctl(slave, termios.TIOCSTI, b'x'); print('typed')\n"
        "except OSError as e: print(e.errno)\n"
        "try: os.open('/dev/tty', os.O_RDWR); print('a terminal')\n"
        "except OSError as e: print(e.errno)"
    )
    typed, opened = map(int, said(box.python(code)).split())
    assert typed == errno.EPERM or (typed == errno.ENOTTY and not kernel.filtered)
    assert opened == errno.ENXIO or (opened == errno.EIO and kernel.gvisor)


# -- other processes, the network ---------------------------------------------------------------------------------------


def test_signals_reach_nobody_outside(box: Arena) -> None:
    hit = []
    before = {number: signal.signal(number, lambda n, _: hit.append(n)) for number in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        code = (
            f"import os, signal\nfor pid in (1, {os.getpid()}, {os.getppid()}, -1, 0):\n"
            "    for s in (signal.SIGUSR1, signal.SIGTERM, signal.SIGKILL):\n"
            "        try: os.kill(pid, s) if pid != 0 else None\n"
            "        except OSError: pass"
        )
        box.python(code)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert hit == []


@pytest.mark.parametrize(
    "stubborn",
    [
        "import signal, time\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\ntime.sleep(60)",
        "import os, signal; os.kill(os.getppid(), signal.SIGSTOP); os.kill(os.getpid(), signal.SIGSTOP)",
        "import os, signal, time\nos.setsid() if os.fork() else None\nos.fork(); os.fork()\ntime.sleep(60)",
        "import os\nr, w = os.pipe()\nos.read(r, 1)",
    ],
    ids=["ignores signals", "stops", "daemons", "waits for ever"],
)
def test_what_does_not_want_to_end_is_ended(box: Arena, stubborn: str) -> None:
    started = time.monotonic()
    execution = box.python(stubborn, limits(wall_s=0.6))
    assert (execution.status, execution.limit) == ("timeout", "wall_s=0.6")
    assert time.monotonic() - started < 5


def test_a_daemon_dies_with_its_command(box: Arena) -> None:
    command = "(setsid nohup sh -c 'while :; do echo x >> beat; sleep 0.01; done' >/dev/null 2>&1 &) ; sleep 0.2; echo started"
    with box.volume() as volume:
        execution = box.backend.run(Command(("/bin/bash", "-c", command), volume, SMALL))
        assert execution.status == "ok"
        assert processes_of(volume) == []
        size = (volume.path / "beat").stat().st_size
        time.sleep(0.1)
        assert (volume.path / "beat").stat().st_size == size > 0


def test_a_cancellation_kills_at_once(box: Arena) -> None:
    cancelled = threading.Event()
    threading.Timer(0.5, cancelled.set).start()
    started = time.monotonic()
    execution = box.python("import time; time.sleep(60)", limits(wall_s=60), cancelled)
    assert execution.killed
    assert time.monotonic() - started < 2, "long before its end"


def test_the_hosts_network_is_not_there(box: Arena, kernel: Kernel, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as path_socket,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        path_socket.bind(str(tmp_path / "s"))
        path_socket.listen()
        (tmp_path / "s").chmod(0o777)
        name = f"longstride-{os.getpid()}"
        abstract.bind(f"\0{name}")
        abstract.listen()
        code = (
            "import socket as s\n"
            f"for family, address in ((s.AF_INET, ('127.0.0.1', {tcp.getsockname()[1]})), (s.AF_UNIX, {str(tmp_path / 's')!r}),\n"
            f"                        (s.AF_UNIX, '\\0{name}'), (s.AF_INET, ('192.0.2.1', 80)), (s.AF_INET6, ('2001:db8::1', 80))):\n"
            "    with s.socket(family) as c:\n"
            "        try: c.settimeout(2); c.connect(address); print('connected', address)\n"
            "        except OSError as e: print(e.errno)"
        )
        answers = [int(word) for word in said(box.python(code)).split()]
        assert [select.select([server], [], [], 0)[0] for server in (tcp, path_socket, abstract)] == [[]] * 3, (
            "nobody came"
        )
    nowhere = {errno.EHOSTUNREACH if kernel.gvisor else errno.ENETUNREACH}
    assert answers[:3] == [errno.ECONNREFUSED, errno.ENOENT, errno.ECONNREFUSED]
    assert {answers[3]} == nowhere
    assert answers[4] in nowhere | {errno.EADDRNOTAVAIL}, "or an engine switched version 6 off"
    assert (
        said(box.shell("ls /sys/class/net 2>&1; cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '")).split()[-1]
        == "lo"
    )


SOCKETS = {
    "raw": (2, 3, errno.EPERM),
    "raw6": (10, 3, errno.EPERM),
    "packet": (17, 3, errno.EAFNOSUPPORT),
    "alg": (38, 5, errno.EAFNOSUPPORT),
    "vsock": (40, 1, errno.EAFNOSUPPORT),
    "bluetooth": (31, 3, errno.EAFNOSUPPORT),
    "can": (29, 3, errno.EAFNOSUPPORT),
}


def test_unusual_sockets_are_refused(box: Arena, kernel: Kernel) -> None:
    code = (
        "import socket\n"
        f"for name, (family, kind, _) in {SOCKETS!r}.items():\n"
        "    try: socket.socket(family, kind); print(name, 0)\n"
        "    except OSError as e: print(name, e.errno)"
    )
    told = dict(line.split() for line in said(box.python(code)).splitlines())
    expected = {name: {code, errno.EPERM} if kernel.gvisor else {code} for name, (_, _, code) in SOCKETS.items()}
    assert set(told) == set(SOCKETS)
    assert {name: code for name, code in told.items() if int(code) not in expected[name]} == {}


def test_the_host_loads_no_module_of_a_protocol(box: Arena, kernel: Kernel) -> None:
    """DCCP, SCTP, UDP-Lite, MPTCP; nf_tables, IPsec and crypto of netlink. gVisor has none of them, or its own."""
    code = (
        "import socket\n"
        "asked = [(f, k, p) for f in (2, 10) for k, p in ((6, 0), (5, 0), (1, 132), (2, 33), (2, 136), (1, 262), (2, 115))]\n"
        "for family, kind, protocol in [*asked, *((16, 3, p) for p in (4, 6, 9, 12, 20, 21))]:\n"
        "    try: socket.socket(family, kind, protocol); print(family, kind, protocol)\n"
        "    except OSError: pass\n"
        "for family, kind in ((1, 1), (1, 5), (2, 1), (2, 2), (10, 1), (16, 3)): socket.socket(family, kind)\n"
        "print('everyday')"
    )
    told = said(box.python(code)).splitlines()
    assert told[-1] == "everyday"
    assert kernel.gvisor or told == ["everyday"]


# -- what is collected --------------------------------------------------------------------------------------------------


LOOT = (
    ("ln -s /etc/shadow loot0", "leads out"),
    ("ln -s ../../../../../etc/shadow loot1", "leads out"),
    ("mkfifo loot2", "not a regular file"),
    ("mkdir loot3", "not a regular file|directory"),
    ("ln -s loot4 loot4", "circle"),
    ("python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"loot5\")'", "not a regular file"),
    ("ln -s /proc/self/environ loot6", "leads out"),
    ("ln -s /dev/zero loot7", "leads out"),
)


@gvisor_once
def test_no_trick_hands_in_a_file_of_the_host(box: Arena) -> None:
    first = box.act("shell", command="; ".join(arrange for arrange, _ in LOOT), task="loot")
    for number, (arrange, why) in enumerate(LOOT):
        told = box.act("submit", answer="x", artifacts=[f"loot{number}"], workspace=first.workspace, task="loot")
        assert told.observation is not None
        assert told.observation.status == "invalid", arrange
        assert re.search(why, told.observation.text) or "no such file" in told.observation.text, arrange
        assert told.artifacts == ()
    assert not list(box.artifacts.list("session/output"))


@gvisor_once
def test_the_host_side_tools_reach_nothing_else(box: Arena) -> None:
    shadow = Path("/etc/shadow").read_bytes()
    first = box.act("shell", command="ln -s /etc/shadow loot", task="reach")
    for path in ("/etc/shadow", "../../../etc/shadow", "/proc/self/environ", "loot"):
        for tool, content in (("read_file", {}), ("write_file", {"content": "owned"})):
            told = box.act(tool, path=path, workspace=first.workspace, task="reach", **content)
            assert told.observation is not None
            assert told.observation.status == "failed", (tool, path)
            assert "root:" not in told.observation.text
    assert Path("/etc/shadow").read_bytes() == shadow


@gvisor_once
def test_odd_names_are_kept_and_shown_as_one_line(box: Arena, kernel: Kernel) -> None:
    command = r"""touch -- "$(printf 'new\nline')" "$(printf '\377\376')" "$(printf '\033[31mred')" ' ' '-rf'; mkfifo "$(printf 'a\nb')" """
    first = box.act("shell", command=command, task="names")
    assert first.observation is not None
    lines = first.observation.text.count("\n")
    assert lines == 1 or (lines == 0 and kernel.gvisor), (
        "the note is one line; of a FIFO in gVisor the host sees nothing"
    )
    box.workspaces.forget("names")
    code = "import os; print(sorted(os.listdir(b'.')))"
    again = box.act("python", code=code, workspace=first.workspace, task="names")
    assert again.observation is not None
    assert again.observation.text == r"[b'\x1b[31mred', b' ', b'-rf', b'new\nline', b'\xff\xfe']" + "\n"


@gvisor_once
def test_terminal_sequences_do_not_reach_a_reader(box: Arena) -> None:
    told = box.act("shell", command=r"printf '\033[2J\033]0;owned\007red\033[31m\000\010'")
    assert told.observation is not None
    assert "\x1b" not in told.observation.text
    assert "\0" not in told.observation.text


@gvisor_once
def test_an_archive_is_a_file_like_any_other(box: Arena) -> None:
    """Nothing is unpacked outside the sandbox; inside, a bomb meets the workspace's limit."""
    code = (
        "import zipfile\n"
        "with zipfile.ZipFile('bomb.zip', 'w', zipfile.ZIP_DEFLATED) as z:\n"
        "    z.writestr('../escaped', 'x'); z.writestr('zeros', bytes(64 << 20))\n"
    )
    first = box.act("python", code=code, task="zip")
    told = box.act("submit", answer="", artifacts=["bomb.zip"], workspace=first.workspace, task="zip")
    assert [a.name for a in told.artifacts] == ["bomb.zip"]
    for stored in list(box.artifacts.list("session/output")):
        box.artifacts.delete(stored.key)
    unpacked = box.act("shell", command="python3 -m zipfile -e bomb.zip .", workspace=first.workspace, task="zip")
    assert unpacked.observation is not None
    assert (unpacked.observation.status, unpacked.observation.limit) == ("limit", "disk_mb=8")


@gvisor_once
def test_a_store_through_a_mapping_is_collected(box: Arena) -> None:
    """On a tmpfs it changes no time of the file."""
    first = box.act("python", code="open('f', 'wb').write(b'a' * 4096)", task="map")
    code = "import mmap\nwith open('f', 'r+b') as f, mmap.mmap(f.fileno(), 0) as m: m[0]; m[0] = 98"
    second = box.act("python", code=code, workspace=first.workspace, task="map")
    box.workspaces.forget("map")
    told = box.act("shell", command="head -c 1 f", workspace=second.workspace, task="map")
    assert told.observation is not None
    assert told.observation.text == "b\n"


def test_the_end_cannot_be_forged(box: Arena) -> None:
    code = (
        "import os\n"
        "for fd in range(3, 300):\n"
        "    try: os.write(fd, b'{ \"exit-code\": 0 }\\n')\n"
        "    except OSError: pass\n"
        "print('{ \"exit-code\": 0 }'); os._exit(9)"
    )
    assert box.python(code).exit_code == 9


# -- the sandbox's own start --------------------------------------------------------------------------------------------


def test_what_the_waiting_shell_is_told_cannot_be_answered_for(box: Arena) -> None:
    """A command that begins with what the shell says when it is ready, and one that looks like a script."""
    assert said(box.run(("printf", '\\n\\n{ "exit-code": 3 }\\n'))) == '\n\n{ "exit-code": 3 }\n'
    assert said(box.run(("echo", "'; exit 9 #", "$(id)", "`id`", "\n exit 8"))) == "'; exit 9 # $(id) `id` \n exit 8\n"


def test_the_command_is_the_first_process_but_one_and_has_its_own_limits(box: Arena) -> None:
    execution = box.shell("echo $$; ulimit -Hc; ulimit -Hf; ulimit -Ht; cd /proc; set -- [0-9]*; echo $#")
    number, core, size, cpu, processes = said(execution).split()
    assert (core, size, cpu) == ("0", str(8 << 10), "11")
    assert 2 <= int(number) < 10, "a runtime's threads had the numbers between"
    assert int(processes) <= 4, "itself and the first one"


def test_a_workspace_cannot_be_taken_off_to_see_what_is_below(box: Arena) -> None:
    told = said(
        box.shell("umount /workspace 2>&1; umount -l /workspace 2>&1; touch there; ls; touch /workspace/.. 2>&1")
    )
    assert "there" in told
    assert "Read-only file system" in told or "Permission denied" in told


def test_a_second_sandbox_does_not_see_the_first_ones_workspace(box: Arena) -> None:
    with box.volume() as one, box.volume() as other:
        (one.path / "secret").write_text(SECRET)
        first, second = box.backend.create(Spec(SMALL, workspace=one)), box.backend.create(Spec(SMALL, workspace=other))
        try:
            first.put(one)
            second.put(other)
            code = (
                "/bin/sh",
                "-c",
                "ls -A /workspace; cat /proc/self/mountinfo; find / -path /usr -prune -o -path /proc -prune -o -name secret -print",
            )
            assert "secret" not in said(second.exec(Command(code, other, SMALL)))
            assert "secret" in said(first.exec(Command(code, one, SMALL)))
        finally:
            first.destroy()
            second.destroy()


def test_files_of_a_workspace_are_the_agents_whatever_ids_they_have_outside(box: Arena) -> None:
    first = box.act("shell", command="id -u; touch mine; chmod 600 mine; find . -printf '%U\\n'", task="ids")
    assert first.observation is not None
    user, *owners = first.observation.text.split()
    assert user != "0"
    assert owners == [user, user]
    box.workspaces.forget("ids")
    look = "find mine -printf '%U:%m\\n'; echo x >> mine"
    told = box.act("shell", command=look, workspace=first.workspace, task="ids")
    assert told.observation is not None
    assert told.observation.status == "ok"
    assert re.fullmatch(r"[1-9]\d*:600\n", told.observation.text)


def test_a_paused_sandbox_stands_still_and_its_clock_too(box: Arena) -> None:
    code = "import time\nwhile 1: print(time.monotonic(), flush=True); time.sleep(0.005); open('beat', 'a').write('x')"
    bounds = limits(wall_s=1)
    with box.volume(bounds) as volume, closing(box.backend.create(Spec(bounds, workspace=volume))) as sandbox:
        sandbox.put(volume)
        ended: list[Execution] = []
        command = Command(("python3", "-c", code), volume, bounds)
        worker = threading.Thread(target=lambda: ended.append(sandbox.exec(command)))
        worker.start()
        eventually(lambda: (volume.path / "beat").exists())
        sandbox.pause()
        stood = (volume.path / "beat").stat().st_size
        time.sleep(1.2)
        assert (volume.path / "beat").stat().st_size - stood <= 1, "one write may be under way"
        assert sandbox.stats().processes >= 2
        assert worker.is_alive(), "the wall clock stood still, too"
        sandbox.resume()
        eventually(lambda: (volume.path / "beat").stat().st_size > stood + 1)
        worker.join()
        assert (ended[0].status, ended[0].limit) == ("timeout", "wall_s=1")
        assert ended[0].usage.wall_ms < 2000


@contextmanager
def closing(sandbox: Sandbox) -> Iterator[Sandbox]:
    try:
        yield sandbox
    finally:
        sandbox.destroy()


# -- the runner itself ---------------------------------------------------------------------------------------------------


def test_a_silent_command_is_waited_for_without_spinning(box: Arena) -> None:
    """It closes its outputs and works on: the ends of the pipes are always readable."""
    before = time.process_time()
    execution = box.shell("exec >&- 2>&-; sleep 0.8; touch done")
    assert (execution.status, execution.exit_code) == ("ok", 0)
    assert execution.usage.wall_ms > 700
    assert time.process_time() - before < 0.5


def test_an_argument_as_long_as_the_system_takes_or_longer(box: Arena, kernel: Kernel) -> None:
    assert box.run(("true", "x" * 100_000)).exit_code == 0
    assert box.run(("true", "x" * 200_000)).exit_code in ((126, 127) if kernel.gvisor else (126,))


def test_much_environment_and_many_files_come_through(box: Arena) -> None:
    env = {f"V{number}": "'\"$`\\\n" * 100 for number in range(200)}
    files = {f"d{number % 7}/f{number}": bytes([number % 256]) * 1000 for number in range(400)}
    code = (
        "import os, pathlib\n"
        "print(sum(len(v) for k, v in os.environ.items() if k[0] == 'V'), len({v for k, v in os.environ.items() if k[0] == 'V'}))\n"
        "print(sum(p.stat().st_size for p in pathlib.Path('/run/longstride').rglob('f*')))"
    )
    with box.volume() as volume:
        execution = box.backend.run(Command(("python3", "-c", code), volume, SMALL, env=env, files=files))
    assert said(execution).split() == [str(200 * 600), "1", str(400 * 1000)]


def test_output_byte_by_byte(box: Arena) -> None:
    code = "import os\nfor i in range(5000): os.write(1, b'x'); os.write(2, b'y')"
    execution = box.python(code)
    assert (execution.status, execution.written) == ("ok", 10_000)


def test_killing_everything_inside_ends_only_the_sandbox(box: Arena) -> None:
    execution = box.shell("sleep 60 & sleep 60 & kill -9 -1; wait; echo alone; kill -9 $$")
    assert (execution.status, execution.exit_code) == ("failed", 137)
    assert b"alone" in execution.stdout
    assert execution.usage.wall_ms < 10_000


def test_the_first_process_can_neither_be_stopped_nor_killed(box: Arena, kernel: Kernel) -> None:
    code = (
        "import os, signal, time\n"
        "for s in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL): os.kill(1, s)\n"
        "time.sleep(0.2); print(open('/proc/1/stat').read().split()[2])"
    )
    execution = box.python(code)
    ended = (execution.exit_code or 0) > 128 and kernel.gvisor
    assert ended or said(execution).strip() in ("S", "R"), "in gVisor it can be, and takes its sandbox along"


@gvisor_once
def test_standard_input_is_at_its_end(box: Arena) -> None:
    assert said(box.shell("cat; read -r line; echo $?; readlink /proc/self/fd/0")) == "1\n/dev/null\n"


# -- nested tricks, descriptors, terminals -------------------------------------------------------------------------------


NESTED = (
    "bwrap --ro-bind / / --proc /proc true",
    "bwrap --unshare-all --ro-bind /usr /usr true",
    "unshare -Urm true",
    "python3 -c 'import ctypes; exit(ctypes.CDLL(None).unshare(0x10000000) == 0 and 0 or 3)'",
    "runc --root /tmp/r run x",
    "nsenter -t 1 -m true",
    "chroot / true",
)


def test_a_sandbox_in_the_sandbox_cannot_be_made(box: Arena, kernel: Kernel) -> None:
    told = said(box.shell("".join(f"({nested}) >/dev/null 2>&1; echo $?; " for nested in NESTED))).split()
    made = {nested for nested, code in zip(NESTED, told, strict=True) if code == "0"}
    own = set() if kernel.filtered else {nested for nested in NESTED if "unshare" in nested}
    assert made <= own, "in gVisor alone: of its own, and ``test_what_runs_is_confined_as_the_host_sees_it``"


def test_no_process_inside_holds_anything_of_the_host_open(box: Arena, kernel: Kernel) -> None:
    """CVE-2024-21626: a runtime's descriptor of a host directory, kept over exec."""
    code = (
        "import os\n"
        "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "    for fd in os.listdir(f'/proc/{pid}/fd') if os.access(f'/proc/{pid}/fd', os.R_OK) else ():\n"
        "        try: print(os.readlink(f'/proc/{pid}/fd/{fd}'))\n"
        "        except OSError: pass\n"
        "for fd in range(3, 64):\n"
        "    try: os.stat(f'/proc/self/fd/{fd}/..'); print('open', fd)\n"
        "    except OSError: pass"
    )
    seen = set(said(box.python(code)).split("\n"))
    streams = r"host:\[[1-3]\]$" if kernel.gvisor else r"pipe:\["
    allowed = re.compile(streams + r"|anon_inode:\[eventfd\]$|/dev/null$|/proc/\d+/fd$|/proc$|$")
    assert {name for name in seen if not allowed.match(name)} == set()


def test_the_program_that_made_the_sandbox_cannot_be_overwritten(box: Arena) -> None:
    """CVE-2019-5736: through ``/proc/PID/exe``."""
    programs = [
        Path(path) for path in ("/usr/sbin/runc", "/usr/bin/bwrap", "/usr/bin/runsc", "/bin/sh") if Path(path).exists()
    ]
    before = [path.read_bytes() for path in programs]
    code = (
        "import os\n"
        "for name in ('/proc/1/exe', '/proc/self/exe', '/bin/sh'):\n"
        "    for flags in (os.O_WRONLY, os.O_RDWR | os.O_TRUNC):\n"
        "        try: os.open(name, flags); print('opened', name)\n"
        "        except OSError: pass"
    )
    assert said(box.python(code)) == ""
    assert [path.read_bytes() for path in programs] == before


@gvisor_once
def test_a_terminal_of_its_own_is_not_the_hosts(box: Arena) -> None:
    code = (
        "import os, pty\n"
        "os.setsid() if os.getpid() != os.getsid(0) else None\n"
        "for path in ('/dev/console', '/dev/tty1', '/dev/ttyS0', '/dev/pts/1', '/dev/vcs'):\n"
        "    try: os.open(path, os.O_RDWR | os.O_NOCTTY); print('opened', path)\n"
        "    except OSError: pass\n"
        "print(os.ttyname(pty.openpty()[1]))"
    )
    assert said(box.python(code)) == "/dev/pts/0\n"


@gvisor_once
def test_hard_limits_cannot_be_raised(box: Arena) -> None:
    code = (
        "import resource as r\n"
        "for kind in (r.RLIMIT_CORE, r.RLIMIT_NOFILE, r.RLIMIT_FSIZE, r.RLIMIT_CPU):\n"
        "    soft, hard = r.getrlimit(kind)\n"
        "    try: r.setrlimit(kind, (hard + 1, hard + 1)); print('raised', kind)\n"
        "    except (ValueError, OSError): pass"
    )
    assert said(box.python(code)) == ""


@gvisor_once
def test_a_crash_leaves_no_core(box: Arena) -> None:
    execution = box.shell("ulimit -c unlimited 2>/dev/null; python3 -c 'import os; os.abort()' ; ls -A")
    assert "core" not in execution.stdout.decode()


# -- what could outlive a sandbox, and what could pass between two --------------------------------------------------------


def test_no_call_leaves_anything_in_the_executors_folder(box: Arena) -> None:
    """Whatever way it ends: what is left by each would fill the host's disk in the end."""

    def files() -> set[Path]:
        """But those of what waits in a pool."""
        waiting = set(box.scratch.path.glob("run-*"))
        return {path for path in box.scratch.path.rglob("*") if not waiting.intersection((path, *path.parents))}

    before = files()
    box.shell("true")
    box.shell("exit 3")
    box.shell("sleep 60", limits(wall_s=0.3))
    box.shell("kill -9 -1")
    assert files() - before == set()


@gvisor_once
def test_nothing_is_there_for_the_next_one(box: Arena) -> None:
    """Of memory, queues and semaphores with a key, and of files outside the workspace."""
    begin = "import ctypes; libc = ctypes.CDLL(None)\n"
    leave = (
        "print(libc.shmget(0x4c53, 4096, 0o1666) >= 0, libc.msgget(0x4c53, 0o1666) >= 0, libc.semget(0x4c53, 1, 0o1666) >= 0)\n"
        "for path in ('/dev/shm/left', '/tmp/left', '/var/tmp/left'):\n"
        "    try: print(bool(open(path, 'w')))\n"
        "    except OSError: print('refused' if 'var' in path else 'not left')"
    )
    assert set(said(box.python(begin + leave)).split()) <= {"True", "refused"}
    look = (
        "print(libc.shmget(0x4c53, 4096, 0), libc.msgget(0x4c53, 0), libc.semget(0x4c53, 1, 0))\n"
        "for path in (b'/dev/shm/left', b'/tmp/left', b'/var/tmp/left'): print(libc.open(path, 0))"
    )
    assert said(box.python(begin + look)).split() == ["-1"] * 6


def test_one_cannot_use_up_what_the_kernel_counts_for_a_user(box: Arena) -> None:
    """inotify instances are counted by user id: each sandbox, or workspace, has its own."""
    grab = "import ctypes; libc = ctypes.CDLL(None); n = 0\nwhile libc.inotify_init() >= 0 and n < 2000: n += 1\n"
    grab += "import os; os.close(4)"
    with meanwhile(box, grab):
        assert int(said(box.python("import ctypes; print(ctypes.CDLL(None).inotify_init())"))) >= 0


# -- names and modes ----------------------------------------------------------------------------------------------------


@gvisor_once
def test_set_uid_files_of_a_workspace_are_powerless(box: Arena) -> None:
    command = "cp /bin/sh s; chmod 6755 s; ./s -p -c 'id -u'; find s -printf '%m\\n'"
    told = box.act("shell", command=command, task="setuid")
    assert told.observation is not None
    assert int(told.observation.text.split()[0]) > 0
    box.workspaces.forget("setuid")
    look = "find s -printf '%m\\n'; ./s -p -c 'id -u'"
    again = box.act("shell", command=look, workspace=told.workspace, task="setuid")
    assert again.observation is not None
    mode, user = again.observation.text.split()
    assert mode in ("755", "6755")
    assert int(user) > 0


@gvisor_once
def test_capabilities_cannot_be_put_on_a_file(box: Arena) -> None:
    code = (
        "import os\nopen('f', 'w')\n"
        "try: os.setxattr('f', 'security.capability', bytes.fromhex('0000000200000000ffffffff00000000ffffffff')); print('set')\n"
        "except OSError: print('refused')"
    )
    assert said(box.python(code)) == "refused\n"


@gvisor_once
def test_a_hard_link_brings_nothing_of_the_system_into_the_workspace(box: Arena) -> None:
    with box.volume() as volume:
        code = (
            "import os\n"
            "for source in ('/etc/passwd', '/usr/bin/env', '/proc/self/exe', '/run/longstride/given'):\n"
            "    try: os.link(source, 'loot'); print('linked', source)\n"
            "    except OSError: print('refused')"
        )
        command = Command(("python3", "-c", code), volume, SMALL, files={"given": b"x"})
        assert said(box.backend.run(command)).split() == ["refused"] * 4
        assert list(volume.path.iterdir()) == []


def test_a_lease_holds_up_nobody_who_opens_the_file(box: Arena) -> None:
    """The kernel lets who opens it wait for 45 s; the executor opens all files of a process that is paused."""
    code = (
        "import fcntl, os\n"
        "for command, kind in ((1024, fcntl.F_WRLCK), (1024, fcntl.F_RDLCK), (1040, 0)):\n"
        "    descriptor = os.open('leased', os.O_RDWR | os.O_CREAT)\n"
        "    try: fcntl.fcntl(descriptor, command, kind); print('had')\n"
        "    except OSError: print('refused')\n"
        "    fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_NONBLOCK); fcntl.lockf(descriptor, fcntl.LOCK_EX)\n"
    )
    assert said(box.python(code)) == "refused\n" * 3


def test_no_other_user_of_the_host_gets_at_what_a_sandbox_is_given(box: Arena) -> None:
    """Where it is mounted can be read by all: /proc/mounts."""
    look = ["setpriv", "--reuid=64321", "--regid=64321", "--clear-groups", "find", "-L"]
    with meanwhile(box, "open('/tmp/own', 'w').write('x')"):
        runs = [str(path) for path in box.scratch.path.glob("run-*")]
        assert runs
        found = subprocess.run([*look, *runs, "-mindepth", "1"], capture_output=True, text=True, check=False)
        inner = [f"{run}/{name}" for run in runs for name in ("support", "tmp", "shm", "tmp/own")]
        reached = subprocess.run([*look, *inner], capture_output=True, text=True, check=False)
    assert (found.stdout, reached.stdout) == ("", "")
    assert reached.stderr.count("Permission denied") >= len(inner)


@gvisor_once
def test_the_longest_names_and_paths_are_kept(box: Arena) -> None:
    code = (
        "import os\n"
        "name = b'\\xe2\\x80\\xae' * 85\nopen(name, 'w').write('rtl')\n"
        "for _ in range(14): os.mkdir('d' * 250); os.chdir('d' * 250)\n"
        "open('end', 'w').write('deep')"
    )
    first = box.act("python", code=code, task="long")
    assert first.observation is not None
    assert first.observation.status == "ok", first.observation.text
    box.workspaces.forget("long")
    look = "import os\nfor root, d, f in os.walk(b'.'): [print(len(root), len(n)) for n in f]"
    told = box.act("python", code=look, workspace=first.workspace, task="long")
    assert told.observation is not None
    assert told.observation.text == f"1 255\n{1 + 14 * 251} 3\n"


@gvisor_once
def test_a_name_that_reads_like_an_option_or_a_command_is_a_name(box: Arena) -> None:
    names = ["--help", "-delete", "$(touch owned)", "`touch owned`", "a;touch owned", "%s%n", "..."]
    code = f"for n in {names!r}: open(n, 'w').write(n)"
    first = box.act("python", code=code, task="options")
    box.workspaces.forget("options")
    told = box.act("python", code="import os; print(sorted(os.listdir()))", workspace=first.workspace, task="options")
    assert told.observation is not None
    assert told.observation.text == f"{sorted(names)}\n"
