"""Artifacts behind the S3 API when the server is away, slow, full, strict, or no S3 server at all."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from longstride.contracts.artifact import ref_for
from longstride.storage import minio_artifacts
from longstride.storage.errors import ArtifactMissing, StorageFull, StorageRefused, StorageUnavailable
from longstride.storage.minio_artifacts import MinioArtifacts

HELLO = ref_for(b"hello", session="s", kind="blob")
Answer = Callable[["Server"], None]


class Server(BaseHTTPRequestHandler):
    """Plays one prepared answer a request, the last of them for ever."""

    answers: list[Answer]
    asked: list[str]

    def play(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        self.asked.append(f"{self.command} {self.path.split('?')[0]}")
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        answer(self)

    do_GET = do_PUT = do_HEAD = do_DELETE = play

    def log_message(self, *_: object) -> None:
        pass


def reply(status: int, body: bytes = b"", kind: str = "application/xml", length: int | None = None) -> Answer:
    def answer(server: Server) -> None:
        server.send_response(status)
        server.send_header("Content-Type", kind)
        server.send_header("Content-Length", str(len(body) if length is None else length))
        server.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        server.send_header("ETag", '"1"')
        server.end_headers()
        server.wfile.write(body)
        if length is not None:
            server.close_connection = True

    return answer


def error(status: int, code: str) -> Answer:
    return reply(status, f"<Error><Code>{code}</Code><Message>m</Message></Error>".encode())


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[MinioArtifacts, list[str]]]]:
    """Start a server with these answers; returns a store on it and the list of its requests."""
    monkeypatch.setattr(minio_artifacts, "FIRST_DELAY_S", 0.001)
    started: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def start(*answers: Answer) -> tuple[MinioArtifacts, list[str]]:
        handler = type("Played", (Server,), {"answers": list(answers), "asked": []})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        started.append((server, thread))
        endpoint = f"http://127.0.0.1:{server.server_port}"
        return MinioArtifacts(
            endpoint, "key", "secret", "bucket", connect_timeout_s=1, read_timeout_s=0.3
        ), handler.asked

    yield start
    for server, thread in started:
        server.shutdown()
        thread.join()
        server.server_close()


def hang(server: Server) -> None:
    server.rfile.read(1)  # until the client hangs up


def test_nobody_listening_is_unavailable_after_a_few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minio_artifacts, "FIRST_DELAY_S", 0.001)
    store = MinioArtifacts("http://127.0.0.1:1", "key", "secret", "bucket")
    for act in (store.check, lambda: store.get(HELLO), lambda: store.exists(HELLO), lambda: list(store.list())):
        with pytest.raises(StorageUnavailable, match=r"http://127\.0\.0\.1:1 cannot .*refused") as caught:
            act()
        assert caught.value.retryable


def test_an_overloaded_server_is_asked_again(play: Callable[..., tuple[MinioArtifacts, list[str]]]) -> None:
    store, asked = play(error(503, "SlowDown"), error(500, "InternalError"), reply(200, b"hello", "text/plain"))
    assert store.get(HELLO) == b"hello"
    assert asked == [f"GET /bucket/{HELLO.key}"] * 3


def test_tries_are_bounded(play: Callable[..., tuple[MinioArtifacts, list[str]]]) -> None:
    store, asked = play(error(503, "SlowDown"))
    with pytest.raises(StorageUnavailable, match=r"cannot read s/blob/.*: SlowDown"):
        store.get(HELLO)
    assert len(asked) == minio_artifacts.ATTEMPTS


def test_a_server_that_never_answers_is_unavailable(play: Callable[..., tuple[MinioArtifacts, list[str]]]) -> None:
    store, _ = play(hang)
    with pytest.raises(StorageUnavailable, match="timed out"):
        store.exists(HELLO)


def test_a_body_that_breaks_off_is_read_again(play: Callable[..., tuple[MinioArtifacts, list[str]]]) -> None:
    store, asked = play(reply(200, b"hel", "text/plain", length=5), reply(200, b"hello", "text/plain"))
    assert store.get(HELLO) == b"hello"
    assert len(asked) == 2


def test_another_kind_of_server_is_recognized(play: Callable[..., tuple[MinioArtifacts, list[str]]]) -> None:
    store, _ = play(reply(404, b"<html>nginx</html>", "text/html"))
    with pytest.raises(StorageUnavailable, match="is this the S3 port"):
        store.get(HELLO)


@pytest.mark.parametrize("code", ["AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"])
def test_refused_keys_are_said_at_once(play: Callable[..., tuple[MinioArtifacts, list[str]]], code: str) -> None:
    store, asked = play(error(403, code))
    with pytest.raises(StorageRefused, match=f"{code}; check the keys") as caught:
        store.put(b"hello", session="s", kind="blob")
    assert not caught.value.retryable
    assert len(asked) == 1


def test_a_full_server_is_said_at_once(play: Callable[..., tuple[MinioArtifacts, list[str]]]) -> None:
    store, asked = play(error(507, "XMinioStorageFull"))
    with pytest.raises(StorageFull, match=r"is full, cannot write s/blob/.*: free some room"):
        store.put(b"hello", session="s", kind="blob")
    assert len(asked) == 1


def test_a_missing_bucket_is_made_by_the_first_put(play: Callable[..., tuple[MinioArtifacts, list[str]]]) -> None:
    store, asked = play(error(404, "NoSuchBucket"), reply(404), reply(200), reply(200))
    store.put(b"hello", session="s", kind="blob")
    assert asked == [f"PUT /bucket/{HELLO.key}", "HEAD /bucket", "PUT /bucket", f"PUT /bucket/{HELLO.key}"]


def test_a_missing_bucket_holds_nothing(play: Callable[..., tuple[MinioArtifacts, list[str]]]) -> None:
    store, _ = play(error(404, "NoSuchBucket"))
    assert list(store.list()) == []
    store.delete(HELLO.key)
    with pytest.raises(ArtifactMissing, match="in bucket bucket"):
        store.get(HELLO)


def test_two_that_make_the_bucket_at_once_both_succeed(play: Callable[..., tuple[MinioArtifacts, list[str]]]) -> None:
    store, _ = play(reply(404), error(409, "BucketAlreadyOwnedByYou"))
    store.check()


def test_a_large_object_that_is_there_and_young_is_not_sent_again(
    play: Callable[..., tuple[MinioArtifacts, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"x" * (minio_artifacts.SMALL + 1)
    there = reply(200, data, "text/plain")
    for is_young, expected in ((True, ["HEAD"]), (False, ["HEAD", "PUT"])):
        monkeypatch.setattr(minio_artifacts, "is_fresh", lambda _, is_young=is_young: is_young)
        store, asked = play(there, reply(200))
        store.put(data, session="s", kind="blob")
        assert [request.split()[0] for request in asked] == expected


@pytest.mark.parametrize("endpoint", ["", "127.0.0.1:9000", "ftp://host", "http://", "http://host/path", "s3://bucket"])
def test_an_endpoint_that_is_no_url_is_refused(endpoint: str) -> None:
    with pytest.raises(ValueError, match="the S3 endpoint must look like http://host:port"):
        MinioArtifacts(endpoint, "key", "secret", "bucket")


def test_a_bucket_name_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"(?i)bucket name"):
        MinioArtifacts("http://127.0.0.1:1", "key", "secret", "NO").check()
