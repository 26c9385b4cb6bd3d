"""Directories for workspaces."""

from pathlib import Path

import pytest

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.volumes import DirectoryVolumes, times_are_honest

LIMITS = SandboxLimits(disk_mb=1, files=16)


@pytest.fixture
def volumes(tmp_path: Path) -> DirectoryVolumes:
    return DirectoryVolumes(tmp_path)


def test_each_volume_is_new_and_private(volumes: DirectoryVolumes) -> None:
    one, other = volumes.create(LIMITS), volumes.create(LIMITS)
    assert one.path != other.path
    assert one.path.stat().st_mode & 0o777 == 0o700
    assert list(one.path.iterdir()) == []


def test_a_full_volume_names_its_limit(volumes: DirectoryVolumes) -> None:
    volume = volumes.create(LIMITS)
    assert volumes.exhausted(volume, LIMITS) is None
    (volume.path / "large").write_bytes(bytes((1 << 20) + 1))
    assert volumes.exhausted(volume, LIMITS) == "disk_mb=1"
    assert not volumes.fit(volume, LIMITS)
    (volume.path / "large").unlink()
    for number in range(17):
        (volume.path / str(number)).touch()
    assert volumes.exhausted(volume, LIMITS) == "files=16"


def test_a_hole_takes_no_disk(volumes: DirectoryVolumes) -> None:
    volume = volumes.create(LIMITS)
    with (volume.path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert volumes.exhausted(volume, LIMITS) is None


def test_a_destroyed_volume_is_gone(volumes: DirectoryVolumes) -> None:
    volume = volumes.create(LIMITS)
    (volume.path / "closed").mkdir(mode=0)
    volumes.destroy(volume)
    assert not volume.path.exists()


def test_a_tmpfs_is_known_to_hide_stores_through_a_mapping() -> None:
    shm = Path("/dev/shm")
    if "tmpfs /dev/shm " not in Path("/proc/mounts").read_text():
        pytest.skip("/dev/shm is not a tmpfs here")
    assert not times_are_honest(shm)
