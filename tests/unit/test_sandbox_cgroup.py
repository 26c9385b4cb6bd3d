"""Control groups on hosts of each kind, laid out as files. The kernel's own behaviour is in the integration tests."""

import errno
from pathlib import Path

import pytest

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.cgroup import Cgroup, Hierarchy, discover, given, grant, of_process, settings

LIMITS = SandboxLimits(memory_mb=100, processes=10, cpus=1.5)


def host(root: Path, cgroups: str, mounts: list[tuple[str, str, str, str]]) -> Path:
    """A /proc whose mountinfo has (root, mount point, kind, options) rows as in proc(5)."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroups)
    rows = [
        f"{30 + i} 24 0:{i} {base} {root / point} rw,relatime - {kind} {kind} {options}\n"
        for i, (base, point, kind, options) in enumerate(mounts)
    ]
    (root / "proc/self/mountinfo").write_text("24 1 8:1 / / rw - ext4 /dev/sda rw\n" + "".join(rows))
    return root / "proc"


def test_a_v1_host_gives_a_directory_in_each_controller_under_the_own_group(tmp_path: Path) -> None:
    for path in ("memory/own", "pids/own", "cpu,cpuacct/own", "freezer/own"):
        (tmp_path / path).mkdir(parents=True)
    proc = host(
        tmp_path,
        "4:memory:/own\n3:pids:/own\n2:cpu,cpuacct:/own\n1:freezer:/own\n",
        [
            ("/", "memory", "cgroup", "rw,memory"),
            ("/", "pids", "cgroup", "rw,pids"),
            ("/", "cpu,cpuacct", "cgroup", "rw,cpu,cpuacct"),
            ("/", "freezer", "cgroup", "rw,freezer"),
        ],
    )
    found = discover(proc)
    assert {(h.version, str(h.base.relative_to(tmp_path))) for h in found} == {
        (1, "memory/own"),
        (1, "pids/own"),
        (1, "cpu,cpuacct/own"),
        (1, "freezer/own"),
    }
    assert given(found) == {"memory", "pids", "cpu", "cpuacct", "freezer"}


def test_a_v2_host_gives_one_directory_with_the_controllers(tmp_path: Path) -> None:
    base = tmp_path / "cg/system.slice"
    base.mkdir(parents=True)
    (base / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (base / "cgroup.subtree_control").write_text("cpu memory pids\n")
    found = discover(host(tmp_path, "0::/system.slice\n", [("/", "cg", "cgroup2", "rw")]))
    assert found == (Hierarchy(2, frozenset({"memory", "pids", "cpu"}), base),)


def test_a_group_that_cannot_give_controllers_leaves_it_to_one_above(tmp_path: Path) -> None:
    session, above = tmp_path / "cg/slice/session", tmp_path / "cg/slice"
    session.mkdir(parents=True)
    (above / "cgroup.controllers").write_text("cpu memory pids\n")
    (above / "cgroup.subtree_control").write_text("cpu memory pids\n")
    (session / "cgroup.controllers").write_text("cpu memory pids\n")
    (session / "cgroup.subtree_control").mkdir()  # Cannot be written, as where processes live in the group.
    found = discover(host(tmp_path, "0::/slice/session\n", [("/", "cg", "cgroup2", "rw")]))
    assert [h.base for h in found] == [above]


def test_a_hybrid_host_gives_v1_controllers_and_a_v2_directory_for_killing(tmp_path: Path) -> None:
    for path in ("memory", "pids", "cpuacct", "freezer", "unified"):
        (tmp_path / path).mkdir()
    found = discover(
        host(
            tmp_path,
            "4:memory:/\n3:pids:/\n2:cpuacct:/\n1:freezer:/\n0::/\n",
            [
                ("/", "memory", "cgroup", "rw,memory"),
                ("/", "pids", "cgroup", "rw,pids"),
                ("/", "cpuacct", "cgroup", "rw,cpuacct"),
                ("/", "freezer", "cgroup", "rw,freezer"),
                ("/", "unified", "cgroup2", "rw"),
            ],
        )
    )
    assert [(h.version, sorted(h.controllers)) for h in found] == [(1, ["memory"]), (1, ["pids"]), (2, [])]


def test_a_container_sees_its_own_part_of_the_tree(tmp_path: Path) -> None:
    """Docker mounts /docker/ID as the root, while /proc/self/cgroup names the whole path."""
    (tmp_path / "memory").mkdir()
    proc = host(tmp_path, "1:memory:/docker/abc\n", [("/docker/abc", "memory", "cgroup", "rw,memory")])
    assert [h.base for h in discover(proc)] == [tmp_path / "memory"]


def test_a_read_only_tree_gives_nothing(tmp_path: Path) -> None:
    (tmp_path / "memory").write_text("no directory can be made in a file")
    proc = host(tmp_path, "1:memory:/\n", [("/", "memory", "cgroup", "rw,memory")])
    assert discover(proc) == ()


@pytest.mark.parametrize(
    ("version", "controllers", "expected"),
    [
        (
            1,
            {"memory", "pids", "cpu"},
            {
                "memory.limit_in_bytes": "104857600",
                "memory.memsw.limit_in_bytes": "104857600",
                "pids.max": "12",
                "cpu.cfs_period_us": "100000",
                "cpu.cfs_quota_us": "150000",
            },
        ),
        (
            2,
            {"memory", "pids", "cpu"},
            {"memory.max": "104857600", "memory.swap.max": "0", "pids.max": "12", "cpu.max": "150000 100000"},
        ),
        (2, set(), {}),
    ],
)
def test_limits_are_written_in_the_units_of_each_version(
    tmp_path: Path, version: int, controllers: set[str], expected: dict[str, str]
) -> None:
    assert dict(settings(Hierarchy(version, frozenset(controllers), tmp_path), LIMITS)) == expected


def test_counters_are_read_where_the_kernel_keeps_them(tmp_path: Path) -> None:
    v1, v2 = tmp_path / "v1/box", tmp_path / "v2/box"
    v1.mkdir(parents=True)
    v2.mkdir(parents=True)
    (v1 / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    (v1 / "memory.max_usage_in_bytes").write_text("4096\n")
    (v1 / "pids.events").write_text("max 7\n")
    (v2 / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\nsystem_usec 2\n")
    hierarchies = (Hierarchy(1, frozenset({"memory", "pids"}), v1.parent), Hierarchy(2, frozenset(), v2.parent))
    group = Cgroup("box", hierarchies)
    assert group.out_of_memory() == 3
    assert group.peak_memory_bytes() == 4096
    assert group.refused_processes() == 7
    assert group.cpu_seconds() == 1.5


def test_counters_of_v2(tmp_path: Path) -> None:
    box = tmp_path / "box"
    box.mkdir()
    (box / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\n")
    (box / "memory.peak").write_text("8192\n")
    group = Cgroup("box", (Hierarchy(2, frozenset({"memory", "pids"}), tmp_path),))
    assert (group.out_of_memory(), group.peak_memory_bytes(), group.refused_processes()) == (1, 8192, 0)


def test_controllers_are_enabled_where_they_are_not_yet(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids")
    assert grant(tmp_path) == {"cpu", "memory", "pids"}
    (tmp_path / "cgroup.subtree_control").write_text("")
    grant(tmp_path)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+pids", "the last of three writes, one a controller"


def test_a_group_that_ends_while_it_is_frozen_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ls-1").mkdir()
    (tmp_path / "ls-1/cgroup.freeze").write_text("0\n")
    group = Cgroup("ls-1", (Hierarchy(2, frozenset(), tmp_path),))

    def gone(_: Path, __: str) -> int:
        # As the kernel answers for the file of a group that was removed after it was opened.
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr(Path, "write_text", gone)
    assert not group.freeze(True)
    assert not group.freeze(False)


def test_the_group_of_a_process_that_has_ended_counts_nothing(tmp_path: Path) -> None:
    """The topmost group is not its own."""
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/memory.usage_in_bytes").write_text("4096\n")
    proc = host(tmp_path, "", [("/", "memory", "cgroup", "rw,memory")])
    group = of_process(4242, proc)
    assert (group.cpu_seconds(), group.memory_bytes(), group.processes(), group.entrances) == (0.0, 0, 0, ())
