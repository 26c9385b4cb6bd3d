"""From an MCP result to a tool's: text is joined, everything else is kept in the task's session and named in the text."""

import base64
import binascii
import json
import mimetypes
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import mcp_types as types

from longstride.contracts.artifact import NamedArtifact
from longstride.sandbox.secrets import secret_in
from longstride.tools.mcp.shape import TooMuchWork, faults
from longstride.tools.mcp.tool import McpTool
from longstride.tools.observation import printable
from longstride.tools.tool import Bench

MOST_KEPT = 16
"""Files of one result: each is a write to the artifact store."""
ODD = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass
class Collected:
    """What a result holds, as the agent is told of it."""

    tool: McpTool
    bench: Bench
    parts: list[str] = field(default_factory=list)
    kept: list[NamedArtifact] = field(default_factory=list)

    def take(self, result: types.CallToolResult) -> None:
        """All of it."""
        for block in result.content:
            self._block(block)
        if result.structured_content is not None:
            self._structured(result.structured_content)

    @property
    def text(self) -> str:
        """For the observation."""
        return "\n".join(self.parts)

    def _block(self, block: types.ContentBlock) -> None:
        match block:
            case types.TextContent():
                self.parts.append(block.text)
            case types.ImageContent() | types.AudioContent():
                self._keep_encoded(block.data, block.type, block.mime_type)
            case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
                self.parts.append(f"[resource {_line(resource.uri)}]\n{resource.text}")
            case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
                self._keep_encoded(resource.blob, _base(resource.uri), resource.mime_type)
            case types.ResourceLink():
                self.parts.append(f"[link to {_line(block.name)}: {_line(block.uri)}]")

    def _keep_encoded(self, data: str, what: str, media_type: str | None) -> None:
        try:
            self._keep(base64.b64decode(data, validate=True), what, media_type)
        except (binascii.Error, ValueError):
            self.parts.append(f"[{what}: what came is not base64]")

    def _keep(self, content: bytes, what: str, media_type: str | None) -> None:
        kind = _line(media_type or "application/octet-stream")
        if name := secret_in(content, self.bench.secrets):
            self.parts.append(f"[{what}, {kind}: not kept, it holds secret {name}]")
        elif len(self.kept) == MOST_KEPT:
            self.parts.append(f"[{what}, {kind}: not kept, a result may hold {MOST_KEPT} files]")
        else:
            kept = self.bench.shelf.put(self._name(what, media_type), content)
            self.kept.append(kept)
            self.parts.append(f"[{kind}, kept as {kept.name}, size {kept.ref.size}, key {kept.ref.key}]")

    def _name(self, what: str, media_type: str | None) -> str:
        suffix = "" if "." in what else mimetypes.guess_extension(media_type or "") or ""
        return f"{self.tool.name}-{len(self.kept) + 1}-{what}{suffix}"

    def _structured(self, value: Any) -> None:
        """Servers should say the same as text; it is not repeated for an agent that has read it."""
        if not any(_holds(part, value) for part in self.parts):
            self.parts.append(json.dumps(value, ensure_ascii=False))


def misfit(tool: McpTool, result: types.CallToolResult) -> str | None:
    """What of the structured result is not as the tool's own schema has it."""
    if tool.tool.output_schema is None or result.is_error:
        return None
    try:
        found = faults(tool.tool.output_schema, result.structured_content)
    except TooMuchWork as error:
        found = [str(error)]
    return f"its structured result is not as its schema says: {'; '.join(found)}" if found else None


def _holds(part: str, value: Any) -> bool:
    try:
        return bool(json.loads(part) == value)
    except (ValueError, RecursionError):
        return False


def _base(uri: str) -> str:
    """The last part of a URI's path, as a file name."""
    try:
        path = urlsplit(uri).path
    except ValueError:
        return "resource"
    return ODD.sub("_", path.rstrip("/").rpartition("/")[2])[-64:] or "resource"


def _line(text: str) -> str:
    return printable(text.encode(errors="replace")).replace("\n", " ")[:256]
