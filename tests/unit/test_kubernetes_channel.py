"""What a pod's command says over a websocket, taken apart; the wire is that of ``v4.channel.k8s.io`` and ``v5``."""

import json
import socket
import struct
from collections.abc import Iterator

import pytest
import websocket

from longstride.sandbox.errors import SandboxFailed
from longstride.sandbox.kubernetes.channel import FRAME, Channel, blocks, limited
from tests.support.kubernetes_api import ended


def frame(payload: bytes, opcode: int = 2, final: bool = True) -> bytes:
    """RFC 6455, section 5.2; a server does not mask."""
    head = bytes([opcode | (0x80 if final else 0)])
    if len(payload) < 126:
        return head + bytes([len(payload)]) + payload
    return head + bytes([126]) + struct.pack(">H", len(payload)) + payload


CLOSE = frame(struct.pack(">H", 1000), 8)


@pytest.fixture
def pair() -> Iterator[tuple[Channel, socket.socket]]:
    """A channel whose handshake is over, and the server's end."""
    here, there = socket.socketpair()
    connection = websocket.WebSocket()
    connection.sock, connection.connected = here, True
    channel = Channel(connection)
    yield channel, there
    channel.close()
    there.close()


def heard(channel: Channel, there: socket.socket, *frames: bytes) -> tuple[bytes, bytes]:
    """Both outputs, once the connection has ended."""
    channel.send([])
    there.sendall(b"".join(frames))
    there.shutdown(socket.SHUT_WR)
    channel.wait()
    assert channel.stdout is not None
    assert channel.stderr is not None
    return channel.stdout.read(), channel.stderr.read()


def status(code: int) -> bytes:
    return frame(b"\x03" + json.dumps(ended(code)).encode())


def test_streams_are_told_apart(pair: tuple[Channel, socket.socket]) -> None:
    channel, there = pair
    outputs = heard(channel, there, frame(b"\x01out"), frame(b"\x02err"), frame(b"\x01\xff\x00"), status(7), CLOSE)
    assert outputs == (b"out\xff\x00", b"err")
    assert (channel.exit_code, channel.poll()) == (7, 7)


def test_a_message_in_fragments_and_pings_between_are_one_message(pair: tuple[Channel, socket.socket]) -> None:
    channel, there = pair
    fragments = (frame(b"\x01first ", final=False), frame(b"ping", 9), frame(b"second", 0))
    assert heard(channel, there, *fragments, status(0), CLOSE) == (b"first second", b"")
    assert channel.exit_code == 0


def test_closed_streams_of_version_5_and_empty_messages_say_nothing(pair: tuple[Channel, socket.socket]) -> None:
    channel, there = pair
    said = (frame(b"\x01"), frame(b""), frame(b"\xff\x01"), frame(b"\x09unknown"), frame(b"\x01x"))
    assert heard(channel, there, *said, status(0), CLOSE) == (b"x", b"")


def test_a_quiet_command_is_kept_by_pings_and_half_a_message_by_itself(
    pair: tuple[Channel, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longstride.sandbox.kubernetes.channel.PING_S", 0.02)
    channel, there = pair
    channel.send([])
    message = frame(b"\x01" + b"late" * 100)
    for part in (message[:1], message[1:3], message[3:50], message[50:]):
        assert there.recv(1000)[0] == 0x89, "a ping, RFC 6455, section 5.5.2"
        there.sendall(part)
    there.sendall(status(0) + CLOSE)
    channel.wait()
    assert channel.stdout is not None
    assert (channel.stdout.read(), channel.exit_code) == (b"late" * 100, 0)


ENDS = [
    b"",
    frame(b"\x03not json"),
    frame(b"\x03[]"),
    frame(b'\x03{"status":"Failure"}'),
    frame(b'\x03{"status":"Failure","details":{"causes":[{"reason":"ExitCode","message":"many"}]}}'),
    frame(b'\x03{"status":"Failure","details":{"causes":[{"reason":"Other","message":"1"}]}}'),
]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("close", [CLOSE, b""], ids=["closed", "lost"])
def test_an_end_that_is_not_told_is_not_known(pair: tuple[Channel, socket.socket], end: bytes, close: bytes) -> None:
    channel, there = pair
    assert heard(channel, there, frame(b"\x01half"), end, close) == (b"half", b"")
    assert (channel.exit_code, channel.poll()) == (None, None)
    assert channel.complaint == "the connection was lost"


def test_the_runtimes_own_words_are_kept(pair: tuple[Channel, socket.socket]) -> None:
    channel, there = pair
    heard(channel, there, frame(b'\x03{"status":"Failure","message":"no such container"}'), CLOSE)
    assert (channel.exit_code, channel.complaint) == (None, "no such container")


def test_a_status_without_an_end_takes_no_memory(pair: tuple[Channel, socket.socket]) -> None:
    channel, there = pair
    channel.send([])
    for _ in range(100):
        there.sendall(frame(b"\x03" + b"x" * 60_000))
    there.shutdown(socket.SHUT_WR)
    channel.wait()
    assert len(channel._status) == 64 << 10


def test_a_command_that_does_not_answer_is_let_go(pair: tuple[Channel, socket.socket]) -> None:
    channel, _ = pair
    channel.send([b"question"])
    with pytest.raises(SandboxFailed, match=r"asking it took more than 0\.05 s"), limited(channel, 0.05, "asking it"):
        channel.wait()
    assert channel.exit_code is None


@pytest.mark.parametrize("sizes", [[], [0], [1, 2, 3], [FRAME], [FRAME - 1, 2], [3 * FRAME + 5, 1], [1] * 1000])
def test_blocks_are_the_same_bytes_and_none_is_large(sizes: list[int]) -> None:
    pieces = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    found = list(blocks(pieces))
    assert b"".join(found) == b"".join(pieces)
    assert all(0 < len(block) <= FRAME for block in found)
    assert all(len(block) == FRAME for block in found[:-1])
