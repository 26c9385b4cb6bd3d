"""What a server writes, cut into messages."""

import json

import pytest

from longstride.tools.mcp.frames import MOST_LINE_BYTES, MOST_MESSAGES, Frames, Nonsense

ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{}}\n'
LOG = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n'


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_messages_come_whole_however_they_are_cut(size: int) -> None:
    frames, stream = Frames(), ANSWER * 3
    found = [m for at in range(0, len(stream), size) for m in frames.feed(stream[at : at + size])]
    assert [message.model_dump(exclude_unset=True) for message in found] == [json.loads(ANSWER)] * 3


@pytest.mark.parametrize(
    "noise",
    [
        b"Server started\n",
        b"[]\n",
        b"{}\n",
        b"null\n",
        b'{"jsonrpc":"1.0","id":1,"result":{}}\n',
        b'{"jsonrpc":"2.0","id":[1],"result":{}}\n',
        b'{"jsonrpc":"2.0","id":1,"result":NaN}\n',
        b"\xff\xfe\n",
        b"[" * 20_000 + b"\n",
        b'{"jsonrpc":"2.0","id":1,"result":' + b'{"a":' * 5000 + b"1" + b"}" * 5001 + b"\n",
    ],
)
def test_what_is_no_message_is_passed_over(noise: bytes) -> None:
    frames = Frames()
    assert len(list(frames.feed(noise + b"\r\n" + ANSWER))) == 1
    assert frames.first_noise == noise[:200].decode(errors="replace").rstrip("\n")


def test_notifications_are_dropped() -> None:
    assert list(Frames().feed(LOG * 10)) == []


def test_a_message_without_end_is_given_up() -> None:
    frames = Frames()
    assert list(frames.feed(b"x" * MOST_LINE_BYTES)) == []
    with pytest.raises(Nonsense, match="more than 4 MiB"):
        list(frames.feed(b"x"))


@pytest.mark.parametrize("line", [ANSWER, LOG, b"x\n"])
def test_messages_without_end_are_given_up(line: bytes) -> None:
    with pytest.raises(Nonsense, match="more than 5000 messages"):
        list(Frames().feed(line * (MOST_MESSAGES + 1)))


def result(content: str) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"result":{"a":' + content.encode() + b"}}\n"


@pytest.mark.parametrize(
    "content", ["[" + "{}," * 40_000 + "{}]", "[" + "1," * 40_000 + "1]", "[" + '",",' * 40_000 + "1]"]
)
def test_a_message_of_too_many_values_is_given_up(content: str) -> None:
    with pytest.raises(Nonsense, match="more than 30000 values"):
        list(Frames().feed(result(content)))


@pytest.mark.parametrize("text", ["{[,", '\\"{', "\\\\", "\\n,"])
def test_the_length_of_a_text_is_no_number_of_values(text: str) -> None:
    (message,) = Frames().feed(result(json.dumps(text * 300_000)))
    assert message.model_dump()["result"]["a"] == text * 300_000
