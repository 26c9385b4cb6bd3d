"""A server that speaks TLS in front of one that does not, with a certificate that nobody but the test trusts."""

import select
import socket
import ssl
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType


class TlsFront:
    """Listens on a port of its own and passes what it decrypts on to ``host:port``."""

    def __init__(self, host: str, port: int, folder: Path, name: str = "localhost") -> None:
        """`name` is the host that the certificate is for; `certificate` in `folder` is the authority's too."""
        self._target = (host, port)
        self.certificate = folder / f"{name}.pem"
        key = folder / f"{name}.key"
        request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", f"/CN={name}"]
        alternative = ["-addext", f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(self.certificate)]
        subprocess.run([*request, *alternative], check=True, capture_output=True)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.certificate, key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> "TlsFront":
        self._threads[0].start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for end in (self._listener, *self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                raw, _ = self._listener.accept()
            except OSError:
                return
            try:
                near = self._context.wrap_socket(raw, server_side=True)
            except OSError:  # the client refuses the certificate
                raw.close()
                continue
            far = socket.create_connection(self._target)
            self._open += [near, far]
            # Reading and writing one TLS socket from two threads is not safe in Python: one thread does both.
            thread = threading.Thread(target=self._pass_on, args=(near, far))
            self._threads.append(thread)
            thread.start()

    def _pass_on(self, near: ssl.SSLSocket, far: socket.socket) -> None:
        try:
            while True:
                ready = [near] if near.pending() else select.select([near, far], [], [])[0]
                for source in ready:
                    if not (data := source.recv(65536)):
                        return
                    (far if source is near else near).sendall(data)
        except (OSError, ValueError):  # closed
            return
