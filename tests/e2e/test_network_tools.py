"""A page and a package, on an embedded stack whose sandboxes reach servers of this test alone."""

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from longstride.client.embedded_stack import EmbeddedStack
from tests.e2e.test_cli_embedded import Newcomer
from tests.support.http_server import listening
from tests.support.package_index import served, shop

STACK = (sys.executable, str(Path(__file__).parents[1] / "support/opened_stack.py"))


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<html><h1>Tea</h1><p>costs <b>4</b></p></html>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def port() -> Iterator[int]:
    with listening(Page) as number:
        yield number


@pytest.fixture
def newcomer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Newcomer]:
    someone = Newcomer(tmp_path / "newcomer")
    someone.stack = EmbeddedStack(someone.stack.home, STACK)
    with served(shop()) as index:
        monkeypatch.setenv("LONGSTRIDE_TOOL_EXECUTOR_PACKAGE_INDEX", index.url)
        someone.stack.up(print)
        yield someone
        someone.stack.down()


def run(someone: Newcomer, lines: list[dict[str, Any]], *options: str) -> list[dict[str, Any]]:
    """A task of one policy's lines, which must succeed; its steps."""
    tools = [word for line in lines for word in ("--tool", line["tool"])]
    policy = someone.script("lines", lines)
    code, out, err = someone.longstride("run", "Do it.", *tools, *options, "--policy", policy, "--json")
    assert code == 0, out + err
    task = json.loads(out.splitlines()[0])["task_id"]
    shown = [someone.longstride("show", task, "--step", str(n), "--json")[1] for n in range(1, len(lines) + 1)]
    return [json.loads(step) for step in shown]


def test_a_package_is_installed_in_one_step_and_used_in_the_next_and_in_the_check(newcomer: Newcomer) -> None:
    lines = [
        {"tool": "install_packages", "arguments": {"packages": ["greeter==1.0"]}},
        {"tool": "python", "arguments": {"code": "import greeter; print(greeter.WORD, greeter.VERSION)"}},
        {"tool": "submit", "arguments": {"answer": "done"}},
    ]
    install, use, _ = run(newcomer, lines, "--check", "python3 -c 'import greeter' && greet")
    assert install["observation"]["text"] == "installed greeter 1.0, wording 1.0"
    assert {c["host"] for c in install["traffic"]["connections"]} == {"packages.longstride"}
    assert install["traffic"]["received"] > 0
    assert use["observation"]["text"] == "hello 1.0\n"
    code, out, err = newcomer.longstride("audit", "export")
    assert code == 0, err
    assert "package index: greeter-1.0-py3-none-any.whl, from the index" in out
    assert newcomer.longstride("audit", "verify")[0] == 0


def test_a_page_is_fetched_and_saved(newcomer: Newcomer, port: int) -> None:
    url = f"http://tea.example.com:{port}/"
    lines = [
        {"tool": "fetch_url", "arguments": {"url": url, "path": "tea.html"}},
        {"tool": "shell", "arguments": {"command": "grep -o 'costs' tea.html"}},
        {"tool": "submit", "arguments": {"answer": "4"}},
    ]
    fetched, found, _ = run(newcomer, lines, "--allow-host", f"tea.example.com:{port}", "--network-volume", "1")
    assert fetched["observation"]["text"].splitlines() == [
        f"200 OK {url}",
        "text/html, 46 bytes, saved as tea.html",
        "",
        "# Tea",
        "",
        "costs 4",
    ]
    assert [c["verdict"] for c in fetched["traffic"]["connections"]] == ["allowed"]
    assert found["observation"]["text"] == "costs\n"
