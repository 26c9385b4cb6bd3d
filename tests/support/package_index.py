"""A package index on loopback, with packages of its own making."""

import base64
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Literal

from tests.support.http_server import listening

Style = Literal["json", "html"]


def wheel(name: str, version: str, source: str, requires: Sequence[str] = (), script: str | None = None) -> bytes:
    """A pure wheel with one module, and a command ``script`` that calls its ``main``."""
    folder = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {text}\n" for text in requires)
    extras = "Provides-Extra: more\n" if any("extra" in text for text in requires) else ""
    files = {
        f"{name}/__init__.py": source,
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{extras}{needs}",
        f"{folder}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if script:
        files[f"{folder}/entry_points.txt"] = f"[console_scripts]\n{script} = {name}:main\n"
    record = "".join(f"{path},sha256={_digest(text)},{len(text.encode())}\n" for path, text in files.items())
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in {**files, f"{folder}/RECORD": f"{record}{folder}/RECORD,,\n"}.items():
            archive.writestr(zipfile.ZipInfo(path), text)  # of no time: made twice it is the same
    return buffer.getvalue()


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


BACKEND = """
import os, shutil
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "built-1.0-py3-none-any.whl"
    shutil.copyfile("payload.whl", os.path.join(folder, name))
    return name
"""


def sdist() -> bytes:
    """A source distribution that builds itself: its backend is in it."""
    metadata = b"Metadata-Version: 2.1\nName: built\nVersion: 1.0\n"
    files = {
        "pyproject.toml": b'[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": BACKEND.encode(),
        "payload.whl": wheel("built", "1.0", "FROM = 'source'\n"),
        "PKG-INFO": metadata,
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, data in files.items():
            entry = tarfile.TarInfo(f"built-1.0/{path}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


@dataclass
class PackageIndex:
    """Serves ``files``: project → file name → content."""

    files: dict[str, dict[str, bytes]]
    style: Style = "json"
    login: str | None = None
    """``user:password`` that every request must bring."""
    lies: set[str] = field(default_factory=set)
    """File names whose content is not what their hash says."""
    unhashed: set[str] = field(default_factory=set)
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """File name → the address that the page names for it."""
    redirects: Mapping[str, str] = field(default_factory=dict)
    """Path → address."""
    asked: list[str] = field(default_factory=list)
    """Paths, in order."""
    port: int = 0

    @property
    def url(self) -> str:
        """For the setting."""
        user = f"{self.login}@" if self.login else ""
        return f"http://{user}127.0.0.1:{self.port}/root/simple"

    def page(self, project: str) -> tuple[str, bytes]:
        """Media type and body."""
        entries = [
            (name, self.elsewhere.get(name, f"../../+f/{name}"), hashlib.sha256(data).hexdigest())
            for name, data in self.files[project].items()
        ]
        if self.style == "html":
            return "text/html", "".join(
                f'<a href="{url}{"" if name in self.unhashed else f"#sha256={digest}"}">{name}</a><br>'
                for name, url, digest in entries
            ).encode()
        listed = [
            {"filename": name, "url": url, "hashes": {} if name in self.unhashed else {"sha256": digest}}
            for name, url, digest in entries
        ]
        body = json.dumps({"meta": {"api-version": "1.0"}, "name": project, "files": listed})
        return "application/vnd.pypi.simple.v1+json", body.encode()

    def get(self, path: str) -> tuple[int, str, bytes]:
        """Status, media type (or where to go), body."""
        if path in self.redirects:
            return 302, self.redirects[path], b""
        folder, _, name = path.rstrip("/").rpartition("/")
        if folder == "/root/simple" and name in self.files:
            return 200, *self.page(name)
        content = next((files[name] for files in self.files.values() if name in files), None)
        if folder == "/root/+f" and content is not None:
            return 200, "application/octet-stream", content + (b"!" if name in self.lies else b"")
        return 404, "text/plain", b"no"


class _Handler(BaseHTTPRequestHandler):
    index: PackageIndex

    def do_GET(self) -> None:
        self.index.asked.append(self.path)
        given = self.headers.get("Authorization", "").removeprefix("Basic ")
        if self.index.login and base64.b64decode(given).decode() != self.index.login:
            status, kind, body = 401, "text/plain", b"who are you?"
        else:
            status, kind, body = self.index.get(self.path)
        self.send_response(status)
        self.send_header("Location" if status == 302 else "Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextmanager
def served(index: PackageIndex) -> Iterator[PackageIndex]:
    """The index on a port of its own."""
    with listening(type("Handler", (_Handler,), {"index": index})) as index.port:
        yield index


def shop() -> PackageIndex:
    """Two versions of a package that needs another, a command, an extra, and one that is built from source."""
    main = "def main():\n    print('hello from', __name__)\n"
    files = {
        "greeter": {
            f"greeter-{version}-py3-none-any.whl": wheel(
                "greeter",
                version,
                f"VERSION = '{version}'\nfrom wording import WORD\n{main}",
                ["wording>=1", 'spice; extra == "more"'],
                "greet",
            )
            for version in ("1.0", "2.0")
        },
        "wording": {"wording-1.0-py3-none-any.whl": wheel("wording", "1.0", "WORD = 'hello'\n")},
        "spice": {"spice-1.0-py3-none-any.whl": wheel("spice", "1.0", "HEAT = 9\n")},
        "json": {"json-9.0-py3-none-any.whl": wheel("json", "9.0", "raise SystemExit(0)\n")},
        "picky": {"picky-1.0-py3-none-any.whl": wheel("picky", "1.0", "", ["greeter<2"])},
        "built": {"built-1.0.tar.gz": sdist()},
    }
    return PackageIndex(files)
