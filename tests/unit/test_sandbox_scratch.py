"""What a dead process leaves is removed by the next one, and what a living one has is left alone."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest

from longstride.sandbox.cgroup import Hierarchy
from longstride.sandbox.errors import SandboxUnavailable
from longstride.sandbox.scratch import Scratch, reap, remove_tree

OWNER = """\
import sys, time
from pathlib import Path
from longstride.sandbox.cgroup import Hierarchy
from longstride.sandbox.scratch import Scratch
scratch = Scratch(Path(sys.argv[1]), (Hierarchy(2, frozenset(), Path(sys.argv[2])),))
scratch.fresh("volume").joinpath("file").write_text("left")
(Path(sys.argv[2]) / scratch.cgroup().name).mkdir()
print(scratch.name, flush=True)
time.sleep(60)
"""


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    path = tmp_path / "groups"
    path.mkdir()
    return path


@pytest.fixture
def root() -> Path:
    """A folder that other ids can reach; pytest's own are closed to them."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "scratch"


def owner(root: Path, groups: Path) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen([sys.executable, "-c", OWNER, str(root), str(groups)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    name = process.stdout.readline().strip()
    process.stdout.close()
    return process, name


def test_a_living_owner_is_left_alone_and_a_dead_one_is_removed(root: Path, groups: Path) -> None:
    process, name = owner(root, groups)
    try:
        assert reap(root) == []
        assert (root / name / "volume-1/file").read_text() == "left"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert reap(root) == [name]
    assert list(root.iterdir()) == []
    assert list(groups.iterdir()) == [], "its control groups went, too"


def test_closing_removes_everything(root: Path, groups: Path) -> None:
    scratch = Scratch(root, (Hierarchy(2, frozenset(), groups),))
    scratch.fresh("run")
    scratch.close()
    assert list(root.iterdir()) == []


def test_two_owners_do_not_meet(root: Path) -> None:
    one, other = Scratch(root), Scratch(root)
    assert one.fresh("run") != other.fresh("run")
    one.close()
    assert [path.name for path in root.iterdir()] == [other.name]
    other.close()


def test_a_folder_whose_owner_died_before_it_had_its_name_is_removed(root: Path) -> None:
    with closing(Scratch(root)):
        for name, age in ((".ls-young", 0), (".ls-old", 3600)):
            (root / name).mkdir()
            (root / name / "cgroups.json").touch()
            os.utime(root / name, times=(time.time() - age,) * 2)
        assert reap(root) == []
        assert [path.name for path in root.glob(".ls-*")] == [".ls-young"]


def test_nothing_to_reap_where_nobody_was(tmp_path: Path) -> None:
    assert reap(tmp_path / "never") == []


def test_a_tree_goes_whatever_its_depth_and_modes(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    descriptor = os.open(top, os.O_RDONLY)
    for _ in range(3000):  # Deeper than PATH_MAX and than Python's recursion.
        os.mkdir("d", 0o700, dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    (tmp_path / "top/closed").mkdir(mode=0)
    remove_tree(top)
    assert not top.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root drops to other ids")
def test_root_is_told_of_a_folder_that_its_sandboxes_cannot_reach(root: Path) -> None:
    closed = root.parent / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(SandboxUnavailable, match="lets nobody else in"):
        Scratch(closed / "scratch")
