"""One thing under several names: a rule about a file or an address must not be passed by writing it otherwise."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote, unquote, urlsplit

from longstride.contracts.v1.environment import WORKSPACE

MOST = 4096
"""Characters of a path or an address; what is longer is text."""
WORD = re.compile(r"[^\x00\s]+")
PORTS = {"http": 80, "https": 443}


def spellings(text: str, links: Mapping[str, str]) -> Iterator[str]:
    """The text, and what a path or an address comes to: ``a//b/../c`` is ``a/c``, ``/workspace/a`` is ``a``, ``HTTP://A.B:80/%61`` is
    ``http://a.b/a``. Links that code makes in its workspace are not known here. Tools take a path below the workspace, or relative to it, for the same
    file.

    Args:
        text: an argument.
        links: of the task's environment, path → target.
    """
    yield text
    if len(text) > MOST or not WORD.fullmatch(text):
        return
    if found := _address(text):
        yield found
    elif "/" in text or "." in text:
        yield from _paths(text, links)


def _address(text: str) -> str | None:
    """In lower case where case means nothing, without the port that goes without saying and without escapes that need not be."""
    try:
        parts = urlsplit(text)
        host, port = (parts.hostname or "").removesuffix("."), parts.port
    except ValueError:
        return None
    if parts.scheme not in PORTS or not host:
        return None
    place = host if port in (None, PORTS[parts.scheme]) else f"{host}:{port}"
    path = quote(_plain(unquote(parts.path) or "/"), safe="/:@!$&'()*+,;=~")
    return f"{parts.scheme}://{place}{path}{f'?{parts.query}' if parts.query else ''}"


def _paths(text: str, links: Mapping[str, str]) -> Iterator[str]:
    plain = _plain(text)
    yield plain
    for link, target in sorted(links.items(), reverse=True):
        if plain == link or plain.startswith(f"{link}/"):
            plain = _plain(target + plain.removeprefix(link))
            yield plain
            break
    if plain.startswith(f"{WORKSPACE}/"):
        yield plain.removeprefix(f"{WORKSPACE}/")
    elif not plain.startswith("/"):
        yield f"{WORKSPACE}/{plain}"


def _plain(path: str) -> str:
    return posixpath.normpath(re.sub("/+", "/", path))
