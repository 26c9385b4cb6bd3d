"""What a server's result holds, and what is made of it."""

from pathlib import Path
from types import MappingProxyType

import mcp_types as types
import pytest

from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import NEVER
from longstride.sandbox.memory import MemorySandbox
from longstride.sandbox.workspace import Workspaces
from longstride.storage.memory import MemoryArtifacts
from longstride.tools.mcp.catalogue import Server
from longstride.tools.mcp.content import Collected
from longstride.tools.mcp.tool import McpTool
from longstride.tools.shelf import Shelf
from longstride.tools.tool import Bench
from tests.support.mcp.arena import GO, pinned


@pytest.fixture
def collected(tmp_path: Path) -> Collected:
    backend, artifacts = MemorySandbox(tmp_path, {}), MemoryArtifacts()
    workspaces = Workspaces(artifacts, backend.volumes)
    bench = Bench(
        backend,
        lambda: workspaces.open("t", None),
        SandboxLimits(),
        "process",
        NEVER,
        MappingProxyType({}),
        shelf=Shelf(artifacts, "session"),
    )
    return Collected(McpTool("notes", Server(command="x"), pinned(GO), GO), bench)


@pytest.mark.parametrize("uri", ["http://[x/y", "http://[::1", "", "file:///", "//\u2100/x", "a" * 5000])
def test_a_blob_is_kept_whatever_its_address(collected: Collected, uri: str) -> None:
    resource = types.BlobResourceContents(uri=uri, blob="aGVsbG8=")
    collected.take(types.CallToolResult(content=[types.EmbeddedResource(type="resource", resource=resource)]))
    [kept] = collected.kept
    assert kept.ref.size == len(b"hello")
    assert kept.name in collected.text
