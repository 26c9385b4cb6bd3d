"""A Docker engine for tests: the one that answers, else a private one that touches neither networks nor packet filters."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from longstride.sandbox.mounts import mounts_below, unmount

START_S = 60.0


@contextmanager
def engine() -> Iterator[str]:
    """Its address. Skips where there is none and none can be started."""
    pytest.importorskip("docker")
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if _answers(address):
        yield address
        return
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        pytest.skip("no Docker engine answers, and none can be started: dockerd and root are needed")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        address = f"unix://{folder}/docker.sock"
        process = _start(Path(folder), address)
        try:
            yield address
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
            for point in mounts_below(Path(folder)):
                unmount(point)


def _start(folder: Path, address: str) -> subprocess.Popen[bytes]:
    runsc = {"path": shutil.which("runsc"), "runtimeArgs": ["--network=none", "--platform=ptrace"]}
    settings = {"runtimes": {"runsc": runsc}} if runsc["path"] else {}
    (folder / "daemon.json").write_text(json.dumps(settings))
    line = ["dockerd", "--data-root", f"{folder}/root", "--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid"]
    line += ["--host", address, "--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"]
    line += ["--config-file", f"{folder}/daemon.json"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + START_S
    while not _answers(address):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            process.wait()
            pytest.skip(f"dockerd does not start here: {(folder / 'log').read_text()[-500:]}")
        time.sleep(0.1)
    return process


def _answers(address: str) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(address.removeprefix("unix://"))
            connection.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in connection.recv(64)
        except OSError:
            return False
