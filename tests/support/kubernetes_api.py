"""A stand-in for a cluster's API server: real HTTP and websockets, answers in the shapes that Kubernetes and agent-sandbox document.

Claims, pods and leases live in dictionaries. What is asked of a pod's porter is carried out for real, by the program that was sent, in a
directory of this machine in the place of the pod's. Commands of the agent's container are played by ``Cluster.on_run``: the signals that
end one would go to the processes of this machine.
"""

import base64
import hashlib
import itertools
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.support.kubernetes_schemas import problems

EXTENSIONS = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/sandboxes"
SANDBOXES = "/apis/agents.x-k8s.io/v1beta1/namespaces/sandboxes/sandboxes"
PODS = "/api/v1/namespaces/sandboxes/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/sandboxes/leases"
MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455, section 1.3."""
COUNTERS: dict[str, Any] = {
    **{"cpu_s": 0.25, "memory_bytes": 1 << 20, "peak_memory_bytes": 2 << 20, "out_of_memory": 0, "processes": 0},
    **{"full": False, "no_inodes": False, "entries": 0, "bytes": 0},
}


def failure(code: int, reason: str, message: str) -> dict[str, Any]:
    """A ``Status``, as in Kubernetes' API conventions."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**status, "message": message, "reason": reason, "code": code}


def ended(code: int) -> dict[str, Any]:
    """The last message of an exec's error stream, as ``remotecommand`` sends it."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    message = f"command terminated with non-zero exit code: exit status {code}"
    failed = {"metadata": {}, "status": "Failure", "message": message, "reason": "NonZeroExitCode"}
    return {**failed, "details": {"causes": causes}}


@dataclass
class Wire:
    """The websocket of one exec, seen from the kubelet's side."""

    connection: socket.socket
    pod: "Pod"
    request: dict[str, Any] = field(default_factory=dict)

    def out(self, data: bytes, stream: int = 1) -> None:
        """A message of a stream."""
        payload = bytes([stream]) + data
        head = b"\x82"
        if len(payload) < 126:
            head += bytes([len(payload)])
        else:
            head += bytes([126]) + struct.pack(">H", len(payload))
        self.connection.sendall(head + payload)

    def err(self, data: bytes) -> None:
        """To standard error."""
        self.out(data, 2)

    def end(self, status: dict[str, Any]) -> None:
        """The command's end, and the connection's."""
        self.out(json.dumps(status).encode(), 3)
        self.connection.sendall(b"\x88\x02\x03\xe8")

    def drop(self) -> None:
        """As when a node or a proxy goes away."""
        self.connection.shutdown(socket.SHUT_RDWR)


@dataclass
class Pod:
    """One pod."""

    name: str
    root: Path
    document: dict[str, Any]
    signals: list[str] = field(default_factory=list)
    killed: threading.Event = field(default_factory=threading.Event)
    counters: dict[str, Any] = field(default_factory=lambda: dict(COUNTERS))
    left: list[int] = field(default_factory=list)
    """Exit codes of the next looks; 0 when there is none."""

    refusals: list[tuple[bytes, int]] = field(default_factory=list)
    """What the porter says, and its exit code, before it has read what is sent to it; each once."""

    @property
    def workspace(self) -> Path:
        """Its /workspace."""
        return self.root / "workspace"

    def terminated(self, reason: str, code: int) -> None:
        """The agent's container, as ``ContainerStatus`` tells it."""
        times = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"}
        self.document["status"]["containerStatuses"][0] |= {
            "ready": False,
            "state": {"terminated": {"exitCode": code, "reason": reason, **times}},
        }


Run = Callable[[Wire], int | None]
"""Plays a command: its exit code, or ``None`` where the connection was dropped."""


class Cluster:
    """The server, and what it knows."""

    def __init__(self, root: Path, template: dict[str, Any]) -> None:
        """``template``: the SandboxTemplate that the pool refers to."""
        self.root = root
        self.objects: dict[str, dict[str, dict[str, Any]]] = {
            f"{EXTENSIONS}/sandboxclaims": {},
            f"{EXTENSIONS}/sandboxwarmpools": {"pool": warm_pool("pool", template["metadata"]["name"])},
            f"{EXTENSIONS}/sandboxtemplates": {template["metadata"]["name"]: template},
            "/apis/node.k8s.io/v1/runtimeclasses": {},
            LEASES: {},
            SANDBOXES: {},
        }
        self.pods: dict[str, Pod] = {}
        self.ready = True
        """Whether claims become ready."""
        self.condition: dict[str, str] = {}
        """What their Ready condition says otherwise."""
        self.failures: list[tuple[str, str, int, dict[str, Any] | str, dict[str, str]]] = []
        """(method, start of the path, code, body, headers), each used once."""
        self.on_run: Run = lambda wire: 7
        self.asked: list[tuple[str, str]] = []
        self.version = 100
        self._numbers = itertools.count()
        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.cluster = self
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def claims(self) -> dict[str, dict[str, Any]]:
        """SandboxClaims by name."""
        return self.objects[f"{EXTENSIONS}/sandboxclaims"]

    @property
    def leases(self) -> dict[str, dict[str, Any]]:
        """Leases by name."""
        return self.objects[LEASES]

    def kubeconfig(self, server: str | None = None, authority: Path | None = None) -> Path:
        """A file that names this server, or what stands in front of it, and a token."""
        path = self.root / "kubeconfig"
        trusted = {"certificate-authority": str(authority)} if authority else {}
        named: dict[str, Any] = {
            "clusters": [{"name": "test", "cluster": {"server": server or self.url, **trusted}}],
            "users": [{"name": "test", "user": {"token": "a-token"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "test", **named}))
        return path

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def bind(self, claim: dict[str, Any]) -> None:
        """What the claim's controller does: a sandbox of the warm pool, and its pod."""
        name = f"pool-{next(self._numbers)}"
        template = next(iter(self.objects[f"{EXTENSIONS}/sandboxtemplates"].values()))
        spec = template["spec"]["podTemplate"]["spec"]
        root = self.root / name
        for folder in ("workspace", "run/longstride"):
            (root / folder).mkdir(parents=True)
        states = [
            {
                "name": c["name"],
                "image": c["image"],
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {}},
            }
            for c in spec["containers"]
        ]
        status = {"phase": "Running", "containerStatuses": states}
        metadata = {"name": name, "namespace": "sandboxes"}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": dict(spec), "status": status}
        self.pods[name] = Pod(name, root, document)
        self.objects[SANDBOXES][name] = {"metadata": metadata, "status": {}}
        condition = {"type": "Ready", "status": "True", "reason": "SandboxReady", "message": ""}
        claim["status"] = {"sandbox": {"name": name, "podIPs": ["10.0.0.9"]}, "conditions": [condition]}

    def next_version(self) -> str:
        """A ``resourceVersion``."""
        self.version += 1
        return str(self.version)


def warm_pool(name: str, template: str) -> dict[str, Any]:
    """A SandboxWarmPool."""
    kind = {"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxWarmPool"}
    return {**kind, "metadata": {"name": name}, "spec": {"replicas": 2, "sandboxTemplateRef": {"name": template}}}


class Server(ThreadingHTTPServer):
    """Knows its cluster."""

    daemon_threads = True
    cluster: Cluster


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the tests look at ``asked``."""

    def do_GET(self) -> None:
        """Read, list, watch, or start a command."""
        path, query = self._begin()
        if path is None:
            return
        if path.endswith("/exec"):
            self._exec(self.server.cluster.pods[path.split("/")[-2]], query)
        elif path in self.server.cluster.objects:
            self._watch(path, query) if "watch" in query else self._list(path, query)
        elif path.startswith(PODS):
            pod = self.server.cluster.pods.get(path.rpartition("/")[2])
            self._answer(200, pod.document) if pod else self._answer(404, failure(404, "NotFound", "pods not found"))
        else:
            self._answer_object(path)

    def do_POST(self) -> None:
        """Create."""
        path, _ = self._begin()
        if path is None:
            return
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if wrong := problems(body):
            self._answer(422, failure(422, "Invalid", "; ".join(wrong)))
            return
        cluster = self.server.cluster
        name = body["metadata"]["name"]
        if name in cluster.objects[path]:
            self._answer(409, failure(409, "AlreadyExists", f'"{name}" already exists'))
            return
        body["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": cluster.next_version()}
        answer = json.loads(json.dumps(body))
        cluster.objects[path][name] = body
        if body["kind"] == "SandboxClaim" and cluster.ready:
            cluster.bind(body)
        self._answer(201, answer)

    def do_PATCH(self) -> None:
        """Merge, one level below another."""
        path, _ = self._begin()
        if path is None:
            return
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind = self.headers["Content-Type"]
        if isinstance(body, dict) and kind not in (
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
        ):
            self._answer(400, failure(400, "BadRequest", f"a {kind} is a list of operations"))
            return
        found = self._object(path)
        if found is None:
            self._answer(404, failure(404, "NotFound", f"{path} not found"))
            return
        _merge(found, body)
        self._answer(200, found)

    def do_DELETE(self) -> None:
        """Remove; a claim takes its pod along."""
        path, _ = self._begin()
        if path is None:
            return
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        cluster = self.server.cluster
        folder, _, name = path.rpartition("/")
        found = cluster.objects[folder].pop(name, None)
        if found is None:
            self._answer(404, failure(404, "NotFound", f'"{name}" not found'))
            return
        if pod := cluster.pods.pop((found.get("status") or {}).get("sandbox", {}).get("name", ""), None):
            pod.killed.set()
        self._answer(200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})

    def _begin(self) -> tuple[str | None, dict[str, list[str]]]:
        """The path, unless a failure is played."""
        split = urlsplit(self.path)
        cluster = self.server.cluster
        cluster.asked.append((self.command, split.path))
        assert self.headers["Authorization"] == "Bearer a-token"
        for number, (method, start, code, body, headers) in enumerate(cluster.failures):
            if method == self.command and split.path.startswith(start):
                del cluster.failures[number]
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self._answer(code, body, headers)
                return None, {}
        return split.path, parse_qs(split.query)

    def _answer(self, code: int, body: Any, headers: dict[str, str] | None = None) -> None:
        text = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
        self.send_header("Content-Length", str(len(text)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def _object(self, path: str) -> dict[str, Any] | None:
        folder, _, name = path.rpartition("/")
        return self.server.cluster.objects.get(folder, {}).get(name)

    def _answer_object(self, path: str) -> None:
        found = self._object(path)
        if found is not None:
            self._answer(200, found)
        elif path.rpartition("/")[0] in self.server.cluster.objects:
            self._answer(404, failure(404, "NotFound", f"{path} not found"))
        else:
            self._answer(404, "404 page not found\n")

    def _list(self, path: str, query: dict[str, list[str]]) -> None:
        wanted = [term.split("=") for term in query.get("labelSelector", [""])[0].split(",") if term]
        items = [
            each
            for each in self.server.cluster.objects[path].values()
            if all(_has(each["metadata"].get("labels", {}), *term) for term in wanted)
        ]
        self._answer(200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items})

    def _watch(self, path: str, query: dict[str, list[str]]) -> None:
        """The object as it is, if it is ready or has failed; then nothing until the time is over."""
        name = query["fieldSelector"][0].removeprefix("metadata.name=")
        cluster, found = self.server.cluster, self.server.cluster.objects[path].get(name)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if found is not None and (cluster.ready or cluster.condition):
            if cluster.condition:
                found["status"] = {"conditions": [{"type": "Ready", "status": "False", **cluster.condition}]}
            line = json.dumps({"type": "MODIFIED", "object": found}).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        else:
            threading.Event().wait(float(query["timeoutSeconds"][0]))
        self.wfile.write(b"0\r\n\r\n")

    def _exec(self, pod: Pod, query: dict[str, list[str]]) -> None:
        """Upgrade, read what was sent, and play the container."""
        assert {"stdin", "stdout", "stderr"} <= query.keys()
        offered = self.headers["Sec-WebSocket-Protocol"].split(",")
        assert "v4.channel.k8s.io" in offered
        key = base64.b64encode(hashlib.sha1((self.headers["Sec-WebSocket-Key"] + MAGIC).encode()).digest()).decode()
        self.wfile.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Protocol: v4.channel.k8s.io\r\nSec-WebSocket-Accept: %s\r\n\r\n" % key.encode()
        )
        self.wfile.flush()
        self.close_connection = True
        wire = Wire(self.connection, pod)
        try:
            if query["container"] == ["porter"]:
                self._porter(wire, query["command"])
            else:
                self._code(wire)
        except (BrokenPipeError, ConnectionResetError):
            pass  # The peer let go.

    def _stdin(self) -> bytes:
        """The next message of standard input."""
        while True:
            first, second = self.rfile.read(2)
            length = second & 0x7F
            if length == 126:
                (length,) = struct.unpack(">H", self.rfile.read(2))
            elif length == 127:
                (length,) = struct.unpack(">Q", self.rfile.read(8))
            mask = self.rfile.read(4)
            data = bytes(byte ^ mask[number % 4] for number, byte in enumerate(self.rfile.read(length)))
            if first & 0xF == 2 and data[:1] == b"\0":
                return data[1:]
            if first & 0xF == 8:
                return b""

    def _request(self) -> tuple[bytes, dict[str, Any]]:
        """What was sent so far, and the request in it."""
        data = self._stdin()
        head, _, _ = data.partition(b"\n")
        while len(data) < len(head) + 1 + int(head):
            data += self._stdin()
        return data, json.loads(data[len(head) + 1 :][: int(head)])["request"]

    def _porter(self, wire: Wire, argv: list[str]) -> None:
        """The program that was sent, in the pod's directory."""
        if wire.pod.refusals:
            said, code = wire.pod.refusals.pop(0)
            wire.err(said)
            wire.end(ended(code))
            return
        data, request = self._request()
        root = wire.pod.root / request["root"].lstrip("/")
        data = data.replace(json.dumps(request["root"]).encode(), json.dumps(str(root)).encode())
        length = len(data.partition(b"\n")[0]) + 1
        grown = len(str(root)) - len(request["root"])
        data = b"%d\n" % (int(data.partition(b"\n")[0]) + grown) + data[length:]
        process = subprocess.Popen(
            [sys.executable, *argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdin.write(data)
            while request["do"] == "lay" and not _complete(data):
                more = self._stdin()
                data += more
                process.stdin.write(more)
            process.stdin.close()
            while piece := process.stdout.read(1 << 14):
                wire.out(piece)
            if said := process.stderr.read():
                wire.err(said)
        wire.end(ended(process.returncode))

    def _code(self, wire: Wire) -> None:
        """The agent's container."""
        _, wire.request = self._request()
        pod, do = wire.pod, wire.request["do"]
        if do == "signal":
            pod.signals.append(wire.request["signal"])
            if wire.request["signal"] == "SIGKILL":
                pod.killed.set()
            wire.end(ended(0))
        elif do == "look":
            code = pod.left.pop(0) if pod.left else 0
            wire.out(json.dumps(pod.counters).encode()) if code == 0 else wire.err(
                b"processes of the command do not end\n"
            )
            wire.end(ended(code))
        else:
            code = self.server.cluster.on_run(wire)
            if code is not None:
                wire.end(ended(code))


def _complete(data: bytes) -> bool:
    """Whether the last line of a parcel is there."""
    return b'{"kind":"end"' in data[-64:] and data.endswith(b"}\n")


def _has(labels: dict[str, str], name: str, value: str | None = None) -> bool:
    return name in labels and value in (None, labels[name])


def _merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    for key, value in patch.items():
        if isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


def long_ago() -> str:
    """A ``MicroTime``."""
    return datetime(2020, 1, 1, tzinfo=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def mode_of(path: Path) -> int:
    """Permission bits, of a link its own."""
    return os.lstat(path).st_mode & 0o777
