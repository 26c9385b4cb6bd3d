"""One package index as a host that sandboxes may ask: pages and files through the cache, and nothing else of where it is."""

import hashlib
import re
from io import BytesIO
from typing import BinaryIO
from urllib.parse import quote, unquote

from longstride.sandbox.egress.served import Answer, Caller, Unserved
from longstride.tools.packages.cache import PackageCache
from longstride.tools.packages.listing import ACCEPTED, JSON_TYPE, BadPage, PackageFile, packed, read, unpacked, written
from longstride.tools.packages.upstream import Fetched, Upstream

PAGE = re.compile(r"/simple/(?P<project>[a-z0-9](?:[a-z0-9-]{0,98}[a-z0-9])?)/")
"""Names as PEP 503 normalizes them."""
FILE = re.compile(r"/files/(?P<project>[a-z0-9-]{1,100})/(?P<sha256>[0-9a-f]{64})/(?P<name>[^/]{1,300})")
BESIDE = ".metadata"
MOST_PAGE = 64 << 20
BINARY = "application/octet-stream"


class Mirror:
    """Holds nothing but what the cache holds: any process answers for any other."""

    def __init__(self, upstream: Upstream, cache: PackageCache) -> None:
        """
        Args:
            upstream: the index.
            cache: which other indexes may share.
        """
        self._upstream = upstream
        self._cache = cache
        self._name = hashlib.sha256(upstream.index.encode()).hexdigest()[:16]

    def answer(self, path: str, caller: Caller, *, whole: bool = True) -> Answer:
        """A project's page, or one of the files that it names."""
        try:
            if page := PAGE.fullmatch(path):
                return self._page(page["project"], caller)
            if file := FILE.fullmatch(path):
                return self._file(file["project"], file["sha256"], unquote(file["name"]), caller, whole=whole)
        except OSError as error:
            raise Unserved(500, f"the executor cannot use its cache of packages: {error.strerror}") from error
        raise Unserved(404, f"the package index shows projects and their files, and nothing at {path[:100]!r}")

    def _page(self, project: str, caller: Caller) -> Answer:
        files, source = self._files(project, caller)
        data = written(project, files)
        return Answer(BytesIO(data), len(data), JSON_TYPE, f"package index: the page of {project}, {source}")

    def _files(self, project: str, caller: Caller) -> tuple[list[PackageFile], str]:
        """What the index has of a project, and where that was found."""
        if known := self._cache.page(f"{self._name}.{project}"):
            return unpacked(known), "from the cache"
        with self._upstream.get(f"{self._upstream.index}/{quote(project)}/", caller, ACCEPTED) as fetched:
            _require_found(fetched, f"project {project!r}")
            try:
                files = read(_bounded(fetched), fetched.media_type, fetched.url)
            except BadPage as error:
                raise Unserved(502, str(error)) from error
        if not files:
            raise Unserved(
                404, f"the package index has no file of {project} with a sha256, without which none is installed"
            )
        self._cache.keep_page(f"{self._name}.{project}", packed(files))
        return files, "from the index"

    def _file(self, project: str, sha256: str, name: str, caller: Caller, *, whole: bool) -> Answer:
        files, _ = self._files(project, caller)
        file = next((f for f in files if (f.name, f.sha256) == (name.removesuffix(BESIDE), sha256)), None)
        places = {file.name: (file.url, file.sha256), file.name + BESIDE: _beside(file)} if file else {}
        url, wanted = places.get(name, (None, None))
        if url is None or wanted is None:
            raise Unserved(404, f"the package index has no file {name!r} of {project} any more")
        if not whole:
            return self._head(wanted, name, file.size if file and name == file.name else None)
        body, source = self._body(url, wanted, name, caller)
        return Answer(body, _size(body), BINARY, f"package index: {name}, {source}")

    def _head(self, sha256: str, name: str, listed: int | None) -> Answer:
        """Without the file itself: a download that nobody reads would be charged to nobody."""
        size = self._cache.size(sha256)
        size = listed if size is None else size
        if size is None:
            raise Unserved(405, f"the size of {name!r} is not known before it is fetched: ask for it with GET")
        return Answer(BytesIO(), size, BINARY, f"package index: {name}, its size alone")

    def _body(self, url: str, sha256: str, name: str, caller: Caller) -> tuple[BinaryIO, str]:
        if kept := self._cache.file(sha256):
            return kept, "from the cache"
        with self._upstream.get(url, caller) as fetched:
            _require_found(fetched, f"file {name!r}")
            return self._cache.keep(sha256, fetched.chunks, name), "from the index"


def _beside(file: PackageFile) -> tuple[str, str | None]:
    return file.url + BESIDE, file.metadata_sha256


def _size(body: BinaryIO) -> int:
    size = body.seek(0, 2)
    body.seek(0)
    return size


def _require_found(fetched: Fetched, what: str) -> None:
    if fetched.status == 404:
        raise Unserved(404, f"the package index has no {what}")
    if fetched.status != 200:
        raise Unserved(502, f"the package index answers {fetched.status} for {what}")


def _bounded(fetched: Fetched) -> bytes:
    data = bytearray()
    for chunk in fetched.chunks:
        data += chunk
        if len(data) > MOST_PAGE:
            raise BadPage(f"{fetched.url} has more than {MOST_PAGE} bytes")
    return bytes(data)
