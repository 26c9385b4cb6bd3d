"""A task that starts a server, asks it, changes what it serves, and leaves it running."""

from pathlib import Path
from typing import Any


def serving_lines(port: int) -> list[dict[str, Any]]:
    """A scripted policy's; ``seen`` holds both when the server was reached before and after the change."""
    get = (
        'page() { python3 -c "import urllib.request as u; print(u.build_opener(u.ProxyHandler({})).open('
        f"'http://127.0.0.1:{port}/page', timeout=5).read().decode())\"; }}; "
    )
    server = f"exec python3 -u -m http.server {port} --bind 127.0.0.1"
    return [
        {"tool": "write_file", "arguments": {"path": "page", "content": "once"}},
        {"tool": "process_start", "arguments": {"name": "web", "command": server}},
        {"tool": "process_poll", "arguments": {"name": "web", "wait_s": 20, "pattern": "Serving HTTP"}},
        {"tool": "bash", "arguments": {"command": f'{get} first=$(page); test "$first" = once'}},
        {"tool": "write_file", "arguments": {"path": "page", "content": "twice"}},
        {"tool": "bash", "arguments": {"command": 'echo "$first $(page)" > seen'}},
        {"tool": "submit", "arguments": {"answer": "served twice"}},
    ]


def serving_processes(port: int) -> list[int]:
    """Pids on this host of what such a task started."""
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _serves(path, port)]


def _serves(process: Path, port: int) -> bool:
    return _command(process).split(b"\0")[1:5] == [b"-u", b"-m", b"http.server", str(port).encode()]


def keepers(service: int) -> list[int]:
    """Pids of the processes that keep such processes for the service of this process id."""
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _keeps(path, service)]


def _keeps(process: Path, service: int) -> bool:
    command = _command(process)
    return b"keeper_main" in command and command.split(b"\0")[-2:-1] == [str(service).encode()]


def _command(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""
