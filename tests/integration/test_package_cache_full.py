"""A cache of packages on a disk that is full. Needs root, for a file system of a known size."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from longstride.sandbox.egress.served import Unserved
from longstride.sandbox.mounts import mount_tmpfs, unmount
from longstride.tools.packages.cache import PackageCache


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root mounts")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount_tmpfs(disk, "mode=700,size=1048576")
    yield disk
    unmount(disk)


def test_a_full_disk_is_told_of_and_leaves_nothing_half(small_disk: Path) -> None:
    cache = PackageCache(small_disk, 1 << 30)
    fits, too_much = os.urandom(400_000), os.urandom(900_000)
    cache.keep(hashlib.sha256(fits).hexdigest(), [fits], "fits.whl").close()
    with pytest.raises(Unserved) as full:
        cache.keep(
            hashlib.sha256(too_much).hexdigest(), [too_much[i : i + 4096] for i in range(0, 900_000, 4096)], "large.whl"
        )
    assert full.value.status == 507
    assert str(full.value) == "no room is left on the executor's host for large.whl: No space left on device"
    assert [path.name for path in (small_disk / "files").iterdir()] == [hashlib.sha256(fits).hexdigest()]
    (small_disk / "filler").write_bytes(b"x" * (os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize))
    cache.keep_page("a.wording", b"[]" * 5000)  # the page is asked for again, and nothing else comes of it
    assert cache.page("a.wording") is None
    assert list((small_disk / "pages").iterdir()) == []
