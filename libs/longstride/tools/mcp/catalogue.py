"""The MCP servers that an operator offers: a file in the shape that MCP clients share, with what was pinned of each server."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, ValidationError, field_validator, model_validator

from longstride.contracts.envelope import explain
from longstride.contracts.v1.action import IdempotencyClass
from longstride.contracts.v1.egress import Egress
from longstride.sandbox.base import SUPPORT
from longstride.tools.mcp.listing import Listing, Pinned

MCP_FILE = "mcp.json"
"""In the folder of an embedded stack, unless ``LONGSTRIDE_MCP_FILE`` names another."""
FOLDERS = "mcp"
"""Below ``SUPPORT``: where a server's folder is shown."""
PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")
SECRET = "secret:"
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Word = Annotated[str, StringConstraints(max_length=4096, pattern=r"^[^\x00]*$")]
SecretName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$")]
ServerName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,31}$")]


class CatalogueUnusable(ValueError):
    """The file of MCP servers cannot be used; the text says where and why."""


class Server(Pinned):
    """One MCP server: a program that is started in a sandbox for each call."""

    type: Literal["stdio"] = "stdio"
    command: Annotated[Word, StringConstraints(min_length=1)]
    """The program, as the sandbox finds it. ``${folder}`` is where ``folder`` is shown, here and in ``args`` and ``env``."""
    args: tuple[Word, ...] = ()
    env: dict[str, Word] = {}
    """A value may be ``${secret:NAME}``, for a server that wants its secret in a variable."""
    folder: Path | None = None
    """A directory of the executor's host that the sandbox sees read-only: the program, and what it needs."""
    secrets: tuple[SecretName, ...] = ()
    """Of the task's tenant; the server finds them in ``/run/longstride/secrets``."""
    egress: Egress | None = None
    """What it may reach over the network; absent: nothing, whatever the task may reach."""
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """For a whole call, the server's start included; the task's own limit holds too."""
    idempotency: IdempotencyClass = "unsafe"
    """``unsafe``: a person approves each call, unless the task wants no approvals, and after a crash decides whether it is made
    again. ``keyed``, ``pure``: it may be made again."""
    tools: tuple[str, ...] | None = None
    """Those of its tools that may be called; absent: all that it listed."""
    pinned: Listing | None = None

    @field_validator("folder")
    @classmethod
    def _absolute(cls, folder: Path | None) -> Path | None:
        if folder is not None and not folder.is_absolute():
            raise ValueError(f"{str(folder)!r} must be an absolute path: services do not run in your directory")
        return folder

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if odd := [name for name in self.env if not VARIABLE.fullmatch(name)]:
            raise ValueError(f"env names {odd[0]!r}, which cannot be an environment variable")
        for word in (self.command, *self.args, *self.env.values()):
            for name in PLACEHOLDER.findall(word):
                self._require(name)
        return self

    def _require(self, placeholder: str) -> None:
        if placeholder == "folder" and self.folder is None:
            raise ValueError("${folder} is used, and no folder is named")
        name = placeholder.removeprefix(SECRET)
        if name != placeholder and name not in self.secrets:
            raise ValueError(f"${{{placeholder}}} is used, and secrets does not name {name!r}")

    def argv(self, name: str) -> tuple[str, ...]:
        """Program and arguments inside the sandbox; secrets do not go there, where every process could read them."""
        return tuple(self._filled(word, name, {}) for word in (self.command, *self.args))

    def variables(self, name: str, secrets: Mapping[str, bytes]) -> dict[str, str]:
        """Its environment. Python looks for modules in the server's folder, never where it or a child of it happens to be.

        Args:
            name: the server's.
            secrets: the values of those that it names.
        """
        own = {key: self._filled(value, name, secrets) for key, value in self.env.items()}
        beside = {"PYTHONPATH": _shown(name)} if self.folder else {}
        return {**beside, **own, "PYTHONSAFEPATH": "1"}

    def folders(self, name: str) -> dict[str, Path]:
        """As ``Command.folders``."""
        return {f"{FOLDERS}/{name}": self.folder} if self.folder else {}

    def home(self, name: str) -> str:
        """As ``Command.cwd``: its own folder, else the root."""
        return _shown(name) if self.folder else "/"

    def _filled(self, word: str, name: str, secrets: Mapping[str, bytes]) -> str:
        known = {f"{SECRET}{key}": os.fsdecode(value.strip()) for key, value in secrets.items()}
        known["folder"] = _shown(name)
        return PLACEHOLDER.sub(lambda found: known.get(found[1], found[0]), word)


def _shown(name: str) -> str:
    return f"{SUPPORT}/{FOLDERS}/{name}"


class Catalogue(Pinned):
    """The whole file."""

    servers: Annotated[dict[ServerName, Server], Field(alias="mcpServers")] = {}

    def with_server(self, name: str, server: Server) -> "Catalogue":
        """The same with one more, or one replaced."""
        return Catalogue(servers={**self.servers, name: server})

    def without(self, name: str) -> "Catalogue":
        """The same with one less."""
        return Catalogue(servers={key: server for key, server in self.servers.items() if key != name})


def read(path: Path) -> Catalogue:
    """The servers in a file.

    Raises:
        CatalogueUnusable: it cannot be read, or does not hold what it should.
    """
    try:
        return Catalogue.model_validate_json(path.read_bytes())
    except OSError as error:
        raise CatalogueUnusable(f"the MCP servers' file {path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise CatalogueUnusable(f"the MCP servers' file {path}: {_explained(error)}") from error


def read_renewing(path: Path, name: str) -> Catalogue:
    """``read``, but a pin of this server that does not hold is left out: it is about to be made anew, or to go.

    Raises:
        CatalogueUnusable: something else is wrong with the file.
    """
    try:
        return read(path)
    except CatalogueUnusable as error:
        try:
            raw = json.loads(path.read_bytes())
            raw["mcpServers"][name].pop("pinned", None)
            return Catalogue.model_validate_json(json.dumps(raw))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise error from None


def _explained(error: ValidationError) -> str:
    remote = any(problem["loc"][-1:] == ("url",) for problem in error.errors(include_url=False))
    return explain(error, "it") + ("; only servers that are programs (stdio) can be used" if remote else "")


def write(path: Path, catalogue: Catalogue) -> None:
    """Replace the file at once: whoever reads it sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(catalogue.model_dump_json(indent=2, exclude_defaults=True) + "\n")
    fresh.replace(path)
