"""Fetches one page and prints a report, as JSON. Runs inside the sandbox: the standard library alone, any Python from 3.9 on.

Everything goes through the relay's proxy, which judges each connection: this program decides nothing.
"""

from __future__ import annotations

import codecs
import errno
import http.client
import json
import os
import re
import ssl
import sys
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import urljoin, urlsplit

from longstride.tools.inside.readable import readable

CHUNK = 1 << 16
SHOWN = 1 << 20
"""Bytes of a body that are read as text."""
PATIENCE_S = 60
REDIRECTS = 10
TEXTUAL = re.compile(r"text/.+|application/(.+\+)?(json|xml|yaml|toml|javascript|ecmascript|x-ndjson|jsonl|sql)")
DECLARED = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{2,40})", re.IGNORECASE)
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class NotFetched(Exception):
    """Why there is no page, in one sentence."""


class Hops(urllib.request.HTTPRedirectHandler):
    """Follows redirects by the same method; the proxy sees each as a connection of its own."""

    max_redirections = max_repeats = REDIRECTS

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """The next request."""
        return urllib.request.Request(newurl, headers=req.headers, method=req.get_method())

    def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> Any:
        """More than ``REDIRECTS`` are a circle."""
        target = urljoin(req.full_url, headers.get("Location") or "")
        if urlsplit(target).scheme not in ("http", "https"):
            raise NotFetched(f"{req.full_url} leads to {target}, which is neither http nor https")
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except urllib.error.HTTPError as error:
            if error.msg.startswith(self.inf_msg):
                told = f"{req.full_url} leads in a circle, or through more than {REDIRECTS} redirects"
                raise NotFetched(told) from None
            raise

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def report(asked: dict[str, Any]) -> dict[str, Any]:
    """Fetch, and say what came.

    Args:
        asked: ``url``, ``method``, ``path`` (where to save it, or ``None``) and ``most`` (bytes of the body).

    Raises:
        NotFetched: nothing came, or too much.
    """
    with opened(asked["url"], asked["method"]) as answer:
        told = {
            "status": answer.status,
            "reason": answer.reason or "",
            "url": answer.url,
            "type": answer.headers.get("Content-Type") or "",
        }
        path = asked["path"] if answer.status < 400 else None
        body, size = ([], 0) if asked["method"] == "HEAD" else taken(answer, path, asked["most"])
        declared = answer.headers.get("Content-Length") if asked["method"] == "HEAD" else None
    told["size"] = int(declared) if declared and declared.isdigit() else size
    return {**told, "saved": path, "text": text_of(b"".join(body), told["type"], told["url"])}


def opened(url: str, method: str) -> Any:
    """The answer, whatever its status.

    Raises:
        NotFetched: there is none.
    """
    for name in ("no_proxy", "NO_PROXY"):
        os.environ.pop(name, None)
    tls = urllib.request.HTTPSHandler(context=ssl.create_default_context())
    headers = {"User-Agent": "longstride/1", "Accept": "*/*", "Accept-Encoding": "gzip, identity;q=0.5"}
    request = urllib.request.Request(url, headers=headers, method=method)
    try:
        return urllib.request.build_opener(tls, Hops).open(request, timeout=PATIENCE_S)
    except urllib.error.HTTPError as error:
        return error
    except urllib.error.URLError as error:
        raise NotFetched(why(error.reason, url)) from None
    except (OSError, http.client.HTTPException) as error:
        raise NotFetched(why(error, url)) from None


def why(reason: Any, url: str) -> str:
    """What went wrong on the way."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"the certificate that the server shows for {url} is not to be trusted: {reason.verify_message}"
    if isinstance(reason, ssl.SSLError):
        return f"TLS with the server of {url} failed: {(reason.reason or str(reason)).replace('_', ' ').lower()}"
    if isinstance(reason, TimeoutError) or "timed out" in str(reason):
        return f"the server of {url} said nothing for {PATIENCE_S} s"
    if isinstance(reason, http.client.IncompleteRead):
        return f"the answer of {url} broke off"
    return f"{url} cannot be fetched: {str(reason).splitlines()[0] if str(reason) else type(reason).__name__}"


def taken(answer: Any, path: str | None, most: int) -> tuple[list[bytes], int]:
    """The start of the body, and its size; all of it in the file ``path``.

    Raises:
        NotFetched: it is more than ``most`` bytes, or it cannot be saved.
    """
    declared = answer.headers.get("Content-Length") or ""
    if declared.isdigit() and int(declared) > most:
        raise NotFetched(
            f"the body has {declared} bytes, and max_bytes is {most}: ask for a larger max_bytes, or for less"
        )
    if path is None:
        return kept(plain(answer), None, most)
    try:
        return saved(answer, path, most)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise
        raise NotFetched(f"it cannot be saved as {path}: {error.strerror or error}") from None


def saved(answer: Any, path: str, most: int) -> tuple[list[bytes], int]:
    """Under its name only when it is whole."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.resolve().is_relative_to(Path.cwd()):
        raise NotFetched(f"it cannot be saved as {path}: a link on the path leads out of the workspace")
    part = target.with_name(f"{target.name}.part")
    try:
        with part.open("wb") as file:
            found = kept(plain(answer), file, most)
        part.replace(target)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()
    return found


def kept(chunks: Iterator[bytes], file: IO[bytes] | None, most: int) -> tuple[list[bytes], int]:
    """Count, write, and keep the first ``SHOWN`` bytes."""
    head, size = [], 0
    for chunk in chunks:
        head.append(chunk[: max(0, SHOWN - size)])
        size += len(chunk)
        if size > most:
            raise NotFetched(
                f"the body has more than the {most} bytes of max_bytes: ask for a larger max_bytes, or for less"
            )
        if file:
            file.write(chunk)
    return head, size


def plain(answer: Any) -> Iterator[bytes]:
    """The body without its compression, a bounded piece at a time.

    Raises:
        NotFetched: it is compressed otherwise than asked for, or broken.
    """
    coding = (answer.headers.get("Content-Encoding") or "identity").strip().lower()
    if coding not in ("identity", "gzip", "x-gzip"):
        raise NotFetched(f"the body is compressed with {coding}, which nobody asked for")
    unpack = None if coding == "identity" else zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        for chunk in pieces(answer):
            if unpack is None:
                yield chunk
                continue
            while chunk:
                yield unpack.decompress(chunk, CHUNK)
                chunk = unpack.unconsumed_tail
        if unpack:
            yield unpack.flush()
    except zlib.error as error:
        raise NotFetched(f"the compressed body is broken: {error}") from None
    except (http.client.HTTPException, OSError) as error:
        if getattr(error, "errno", None) in NO_ROOM:
            raise
        raise NotFetched(why(error, answer.url)) from None


def pieces(answer: Any) -> Iterator[bytes]:
    """The body as it came.

    Raises:
        NotFetched: it is shorter than was declared.
    """
    left = int(answer.headers["Content-Length"]) if (answer.headers.get("Content-Length") or "").isdigit() else 0
    while chunk := answer.read(CHUNK):
        left -= len(chunk)
        yield chunk
    if left > 0:
        raise NotFetched(f"the answer of {answer.url} broke off: {left} bytes are missing")


def text_of(body: bytes, declared: str, url: str) -> str | None:
    """The body as text; ``None`` when it is none."""
    kind = declared.partition(";")[0].strip().lower()
    known = TEXTUAL.fullmatch(kind) is not None
    if not known and (kind not in ("", "application/octet-stream", "binary/octet-stream") or b"\0" in body):
        return None
    text = decoded(body, declared, strict=not known)
    looks_html = kind in ("text/html", "application/xhtml+xml")
    return readable(text, url) if text is not None and looks_html else text


def decoded(body: bytes, declared: str, *, strict: bool) -> str | None:
    """By the charset that the server, a mark at the start, or the page itself names; else UTF-8."""
    named = re.search(r"charset\s*=\s*[\"']?([A-Za-z0-9_.:-]+)", declared, re.IGNORECASE)
    meta = DECLARED.search(body[:4096])
    marks = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
    by_mark = next((name for mark, name in marks if body.startswith(mark)), None)
    charset = by_mark or (named[1] if named else None) or (meta[1].decode() if meta else "utf-8")
    try:
        codecs.lookup(charset)
        return body.decode(charset, "strict" if strict else "replace")
    except UnicodeError:
        return None
    except LookupError:
        return body.decode("utf-8", "replace")


def main() -> int:
    """The report on standard output; 1 when there is no page."""
    try:
        told = report(json.loads(sys.argv[1]))
    except NotFetched as error:
        told = {"error": str(error)}
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        told = {"error": "the workspace has no room for it", "full": True}
    sys.stdout.write(json.dumps(told))
    return 1 if "error" in told else 0
