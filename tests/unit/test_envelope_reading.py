"""The envelope's shortcuts: what is plain is not searched, what is read is not read again, and neither hides anything."""

import json

import pytest

from longstride.contracts.envelope import MessageError, decode, seal
from longstride.contracts.v1.commands import CancelTask

WIRE = seal(CancelTask(reason="enough"), task_id="task_1").encode()


@pytest.mark.parametrize(
    "reason",
    [
        b"a\\u0000b",
        b"a\\ud800b",
        b"a\\uD800b",
        b"a\xed\xa0\x80b",
    ],
    ids=["escaped NUL", "escaped surrogate", "in capitals", "raw surrogate"],
)
def test_text_that_cannot_be_stored_is_refused_however_it_is_written(reason: bytes) -> None:
    with pytest.raises(MessageError, match="cannot be stored"):
        decode(WIRE.replace(b"enough", reason))


def test_utf_16_is_searched_too() -> None:
    raw = json.loads(WIRE)
    raw["body"]["reason"] = "a\0b"
    with pytest.raises(MessageError, match="cannot be stored"):
        decode(json.dumps(raw).encode("utf-16-le"))


@pytest.mark.parametrize("reason", ["enough", "genug für heute", 'quoted "\\n"'])
def test_other_text_arrives_as_it_was(reason: str) -> None:
    wire = seal(CancelTask(reason=reason), task_id="task_1").encode()
    assert decode(wire).message() == CancelTask(reason=reason)


def test_a_copy_with_another_body_is_read_anew() -> None:
    envelope = decode(WIRE)
    assert envelope.message() is envelope.message()
    other = envelope.model_copy(update={"body": {"reason": "another"}})
    assert other.message() == CancelTask(reason="another")
    assert envelope.follow(CancelTask(reason="a third")).message() == CancelTask(reason="a third")
