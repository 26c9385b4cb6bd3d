"""Files of packages on disk: whole, verified and bounded, whoever writes at the same time."""

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from longstride.sandbox.egress.served import Unserved
from longstride.tools.packages.cache import ABANDONED_S, PAGE_S, PackageCache


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def cache(tmp_path: Path) -> PackageCache:
    return PackageCache(tmp_path / "cache", 1000)


def keep(cache: PackageCache, data: bytes) -> bytes:
    with cache.keep(sha(data), [data[:3], data[3:]], "a.whl") as file:
        return file.read()


def held(cache: PackageCache, data: bytes) -> bool:
    file = cache.file(sha(data))
    if file is None:
        return False
    with file:
        assert file.read() == data
    return True


def names(cache: PackageCache) -> list[str]:
    return sorted(path.name for path in (cache.folder / "files").iterdir())


def test_what_was_kept_is_there(cache: PackageCache) -> None:
    assert not held(cache, b"wheel")
    assert keep(cache, b"wheel") == b"wheel"
    assert held(cache, b"wheel")
    assert names(cache) == [sha(b"wheel")]


def test_another_file_than_the_index_names_is_not_kept(cache: PackageCache) -> None:
    with pytest.raises(
        Unserved, match=f"a.whl is not the file that the index names: its sha256 is {sha(b'evil')}, not"
    ):
        cache.keep(sha(b"good"), [b"evil"], "a.whl")
    assert names(cache) == []


def test_a_download_that_breaks_off_leaves_nothing(cache: PackageCache) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise Unserved(502, "it broke off")

    with pytest.raises(Unserved, match="it broke off"):
        cache.keep(sha(b"half"), broken(), "a.whl")
    assert names(cache) == []


def test_a_file_that_went_bad_on_the_disk_counts_as_absent(cache: PackageCache) -> None:
    keep(cache, b"wheel")
    (cache.folder / "files" / sha(b"wheel")).write_bytes(b"wheem")
    assert not held(cache, b"wheel")
    assert keep(cache, b"wheel") == b"wheel"


def used(cache: PackageCache, data: bytes, seconds_ago: float) -> None:
    at = time.time() - seconds_ago
    os.utime(cache.folder / "files" / sha(data), (at, at))


def test_those_that_nobody_used_for_longest_make_room(cache: PackageCache) -> None:
    old, older, new = b"a" * 400, b"b" * 400, b"c" * 400
    for data, age in ((old, 500), (older, 900)):
        keep(cache, data)
        used(cache, data, age)
    with cache.file(sha(older)) as reading:  # it is used, and so it stays; the other goes
        keep(cache, new)
        assert reading.read() == older
    assert (held(cache, old), held(cache, older), held(cache, new)) == (False, True, True)


def test_what_is_being_read_stays_readable_when_it_makes_room(cache: PackageCache) -> None:
    keep(cache, b"a" * 700)
    with cache.file(sha(b"a" * 700)) as reading:
        used(cache, b"a" * 700, 50)
        keep(cache, b"b" * 700)
        assert not held(cache, b"a" * 700)
        assert reading.read() == b"a" * 700


def test_a_file_that_no_cache_of_this_size_holds(cache: PackageCache) -> None:
    keep(cache, b"wheel")
    with pytest.raises(Unserved, match=r"a\.whl is larger than the executor's whole cache of packages, 1000 bytes"):
        keep(cache, b"x" * 1001)
    assert held(cache, b"wheel")


def test_a_part_of_a_process_that_died_goes_and_one_that_grows_stays(cache: PackageCache) -> None:
    keep(cache, b"wheel")
    for name, age in ((".part-dead", ABANDONED_S + 60), (".part-alive", 60)):
        part = cache.folder / "files" / name
        part.write_bytes(b"half")
        os.utime(part, (time.time() - age,) * 2)
    keep(cache, b"next")
    assert names(cache) == sorted([".part-alive", sha(b"wheel"), sha(b"next")])


def test_many_write_the_same_at_once(tmp_path: Path) -> None:
    data, faults = os.urandom(1 << 20), []
    cache = PackageCache(tmp_path, 4 << 20)
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        for _ in range(5):
            with cache.keep(sha(data), [data[i : i + 4096] for i in range(0, len(data), 4096)], "a.whl") as file:
                if file.read() != data:
                    faults.append("kept")
            if not held(cache, data):
                faults.append("held")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert names(cache) == [sha(data)]


def test_pages_are_believed_for_a_while(cache: PackageCache) -> None:
    assert cache.page("a.wording") is None
    cache.keep_page("a.wording", b"[]")
    assert cache.page("a.wording") == b"[]"
    os.utime(cache.folder / "pages" / "a.wording.json", (time.time() - PAGE_S - 1,) * 2)
    assert cache.page("a.wording") is None
    cache.keep_page("a.other", b"[]")
    assert [path.name for path in (cache.folder / "pages").iterdir()] == ["a.other.json"]


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "A" * 64, "a" * 63])
def test_a_name_that_is_no_hash_reaches_no_file(cache: PackageCache, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "cache" / "outside"
    outside.parent.mkdir()
    outside.write_text("mine")
    with pytest.raises(ValueError, match="is not a sha256"):
        cache.file(name)
    with pytest.raises(ValueError, match="is not a sha256"):
        cache.keep(name, [b"x"], "a.whl")
    assert outside.read_text() == "mine"


def test_pages_and_what_is_under_way_take_room(cache: PackageCache) -> None:
    keep(cache, b"a" * 600)
    used(cache, b"a" * 600, 50)
    cache.keep_page("i.large", b"p" * 300)
    assert held(cache, b"a" * 600)
    used(cache, b"a" * 600, 50)
    cache.keep_page("i.other", b"q" * 300)
    assert (held(cache, b"a" * 600), cache.page("i.large"), cache.page("i.other")) == (False, b"p" * 300, b"q" * 300)
    (cache.folder / "files" / ".part-alive").write_bytes(b"x" * 500)
    cache.keep_page("i.third", b"r")
    assert cache.page("i.third") == b"r"
    assert cache.page("i.large") is None


def test_the_size_of_a_file_that_is_here(cache: PackageCache) -> None:
    assert cache.size(sha(b"wheel")) is None
    keep(cache, b"wheel")
    assert cache.size(sha(b"wheel")) == 5
