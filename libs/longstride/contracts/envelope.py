"""The envelope of every message: JSON, 64 KiB at the most, one version a type."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field, JsonValue, PrivateAttr, StringConstraints, ValidationError

from longstride.contracts.ids import new_id
from longstride.contracts.model import Contract, storable
from longstride.contracts.v1 import MESSAGES

MAX_BYTES = 64 * 1024
"""What is bigger travels as an ArtifactRef."""

Identifier = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]*$")]


class MessageError(ValueError):
    """The message cannot be understood."""


class Envelope(Contract):
    """Who says what about which task, and because of what."""

    message_id: Identifier
    """Unique a message; a second delivery under the same id has no effect."""
    type: str
    """A key of ``v1.MESSAGES``."""
    version: Literal[1] = 1
    task_id: Identifier | None = None
    session_id: Identifier | None = None
    tenant: Identifier = "default"
    causation_id: Identifier | None = None
    """The message that this one answers or follows from."""
    occurred_at: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))
    traceparent: Annotated[str, StringConstraints(pattern=r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$")] | None = None
    """W3C trace context of the producer."""
    attempt: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Which try of the step's phase this message belongs to."""
    body: dict[str, JsonValue]
    _read: tuple[dict[str, JsonValue], Contract] | None = PrivateAttr(None)
    """The body, and what ``message`` made of it."""

    def message(self) -> Contract:
        """The typed body.

        Raises:
            MessageError: the type is unknown or the body does not fit it.
        """
        if self._read is None or self._read[0] is not self.body:  # a copy may have another body
            self._read = self.body, self._typed()
        return self._read[1]

    def _typed(self) -> Contract:
        model = MESSAGES.get(self.type)
        if model is None:
            raise MessageError(f"unknown message type {self.type!r}; known: {', '.join(sorted(MESSAGES))}")
        try:
            return model.model_validate(self.body)
        except ValidationError as error:
            raise MessageError(f"invalid {self.type} body: {explain(error)}") from error

    def encode(self) -> bytes:
        """The wire form.

        Raises:
            MessageError: it is larger than ``MAX_BYTES``.
        """
        wire = self.model_dump_json(exclude_none=True).encode()
        if len(wire) > MAX_BYTES:
            raise MessageError(f"{self.type} is {len(wire)} bytes; at most {MAX_BYTES} fit: put content in an artifact")
        return wire

    def follow(self, message: Contract, **changes: Any) -> "Envelope":
        """An envelope for a message caused by this one; task, session, tenant and trace go along."""
        body = message.model_dump(mode="json", exclude_none=True)
        envelope = self.model_copy(
            update={
                "message_id": new_id("msg"),
                "type": message_type(message),
                "causation_id": self.message_id,
                "occurred_at": datetime.now(UTC),
                "body": body,
                "attempt": 1,
                **changes,
            }
        )
        envelope._read = body, message
        return envelope


def seal(message: Contract, **fields: Any) -> Envelope:
    """An envelope for a message that nothing caused."""
    fields.setdefault("message_id", new_id("msg"))
    return Envelope(type=message_type(message), body=message.model_dump(mode="json", exclude_none=True), **fields)


def another_tenants(envelope: Envelope, task_id: str | None = None) -> str:
    """What its sender is told of a message about a task that is not its tenant's; ``task_id``: where the envelope names another."""
    named = task_id or envelope.task_id
    return f"tenant {envelope.tenant!r} has no task {named!r}: a message about a task names its tenant"


def message_type(message: Contract) -> str:
    """``SubmitTask(...)`` → ``"submit_task"``."""
    return TYPES[type(message)]


def decode(wire: bytes) -> Envelope:
    """Parse and check a message, its body included.

    Raises:
        MessageError: oversized, not JSON, an unknown version or type, a missing or unknown field. The text names which.
    """
    if len(wire) > MAX_BYTES:
        raise MessageError(f"message is {len(wire)} bytes; at most {MAX_BYTES} are read: put content in an artifact")
    try:
        raw = json.loads(wire, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"not JSON: {error}") from error
    if not isinstance(raw, Mapping):
        raise MessageError(f"expected a JSON object, got {type(raw).__name__}")
    if not _plain(wire) and raw != storable(raw):
        raise MessageError("the text holds a NUL character or a lone surrogate, which cannot be stored")
    if raw.get("version", 1) != 1:
        raise MessageError(f"unknown version {raw['version']!r} of {raw.get('type', 'message')!r}; this build reads 1")
    try:
        envelope = Envelope.model_validate(raw)
    except ValidationError as error:
        raise MessageError(f"invalid envelope: {explain(error)}") from error
    envelope.message()
    return envelope


def _plain(wire: bytes) -> bool:
    """Whether it is ASCII without escapes for anything else, so that all of it can be stored."""
    return wire.isascii() and b"\\u" not in wire and b"\0" not in wire


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def explain(error: ValidationError, whole: str = "body") -> str:
    """One line of a pydantic error: each field's path and what is wrong with it, never the offending value.

    Args:
        error: pydantic's.
        whole: what is wrong when no field is.
    """
    return "; ".join(
        f"{'.'.join(map(str, e['loc'])) or whole}: {e['msg'].removeprefix(OUR_OWN)}"
        for e in error.errors(include_url=False, include_input=False)
    )


OUR_OWN = "Value error, "
"""What pydantic puts before sentences of our own."""


TYPES = {model: name for name, model in MESSAGES.items()}
