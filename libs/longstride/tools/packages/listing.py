"""What an index has of one project: read from its page, of either kind, and written anew for the sandbox."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit

JSON_TYPE = "application/vnd.pypi.simple.v1+json"
ACCEPTED = f"{JSON_TYPE}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"
"""PEP 691, else PEP 503."""
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.!+-]{0,254}\.(whl|tar\.gz|zip|tar\.bz2|tgz)")
SHA256 = re.compile(r"[0-9a-f]{64}")


class BadPage(ValueError):
    """The index's answer is no page of a project."""


@dataclass(frozen=True, slots=True)
class PackageFile:
    """One file of a project."""

    name: str
    url: str
    """Where the index has it."""
    sha256: str
    size: int | None = None
    requires_python: str | None = None
    yanked: str | bool = False
    metadata_sha256: str | None = None
    """Of the file beside it that holds its metadata alone (PEP 658), where there is one."""


def read(page: bytes, media_type: str, address: str) -> list[PackageFile]:
    """The files that can be verified; those without a sha256 are as good as absent.

    Args:
        page: the answer's body.
        media_type: its Content-Type.
        address: where it was, which its links are relative to.

    Raises:
        BadPage: it is not one.
    """
    kind = media_type.partition(";")[0].strip().lower()
    try:
        found = _of_json(page, address) if kind.endswith("json") else _of_html(page, address)
        return [file for file in found if _usable(file)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadPage(f"{address} is not a page of a package index: {error}") from error


def _of_json(page: bytes, address: str) -> Iterator[PackageFile]:
    for entry in json.loads(page)["files"]:
        beside = entry.get("core-metadata", entry.get("dist-info-metadata"))
        size = entry.get("size")
        yield PackageFile(
            name=str(entry["filename"]),
            url=urljoin(address, entry["url"]),
            sha256=str(entry.get("hashes", {}).get("sha256", "")).lower(),
            size=size if isinstance(size, int) and size >= 0 else None,
            requires_python=entry.get("requires-python"),
            yanked=entry.get("yanked", False),
            metadata_sha256=_verified(beside.get("sha256")) if isinstance(beside, dict) else None,
        )


def _of_html(page: bytes, address: str) -> Iterator[PackageFile]:
    links = _Links()
    links.feed(page.decode())
    links.close()
    for attributes in links.found:
        url, fragment = urldefrag(urljoin(urljoin(address, links.base), attributes.get("href") or ""))
        beside = attributes.get("data-core-metadata", attributes.get("data-dist-info-metadata")) or ""
        yield PackageFile(
            name=unquote(urlsplit(url).path.rpartition("/")[2]),
            url=url,
            sha256=fragment.removeprefix("sha256=").lower() if fragment.startswith("sha256=") else "",
            requires_python=attributes.get("data-requires-python"),
            yanked=(attributes["data-yanked"] or True) if "data-yanked" in attributes else False,
            metadata_sha256=_verified(beside.removeprefix("sha256=")) if beside.startswith("sha256=") else None,
        )


class _Links(HTMLParser):
    """The anchors of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.base = ""
        self.found: list[Mapping[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "base":
            self.base = attributes.get("href") or ""
        elif tag == "a" and attributes.get("href"):
            self.found.append(attributes)


def _usable(file: PackageFile) -> bool:
    web = urlsplit(file.url).scheme in ("http", "https")
    return web and FILE_NAME.fullmatch(file.name) is not None and _verified(file.sha256) is not None


def _verified(sha256: object) -> str | None:
    """In lower case; ``None`` for what is no sha256."""
    digest = sha256.lower() if isinstance(sha256, str) else ""
    return digest if SHA256.fullmatch(digest) else None


def written(project: str, files: Sequence[PackageFile]) -> bytes:
    """The page that the sandbox is shown: the same files, at addresses of the mirror's own."""
    return json.dumps(
        {"meta": {"api-version": "1.0"}, "name": project, "files": [_entry(project, file) for file in files]}
    ).encode()


def _entry(project: str, file: PackageFile) -> dict[str, Any]:
    """Without ``dist-info-metadata``, as PEP 714 asks: pip 22.3 to 23.1 break off where it is there, whatever it is."""
    return {
        "filename": file.name,
        "url": f"/files/{project}/{file.sha256}/{quote(file.name)}",
        "hashes": {"sha256": file.sha256},
        "requires-python": file.requires_python,
        "yanked": file.yanked,
        **({"core-metadata": {"sha256": file.metadata_sha256}} if file.metadata_sha256 else {}),
    }


def packed(files: Sequence[PackageFile]) -> bytes:
    """For the cache."""
    return json.dumps([asdict(file) for file in files]).encode()


def unpacked(data: bytes) -> list[PackageFile]:
    """What ``packed`` made."""
    return [PackageFile(**entry) for entry in json.loads(data)]
