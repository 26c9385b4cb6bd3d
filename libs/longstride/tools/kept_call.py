"""A call that one process has another carry out: a line of JSON each way, over a unix socket.

The socket says ``HELLO`` to who connects. Whoever asked keeps the connection open, and closes its half to call the call
off; a line answers it in either case.
"""

from pydantic import BaseModel, ConfigDict

from longstride.contracts.v1.commands import ExecuteAction
from longstride.contracts.v1.events import ActionExecuted
from longstride.sandbox.errors import ExecutionCancelled, SandboxFailed, WorkspaceCorrupt
from longstride.storage.errors import (
    ArtifactCorrupt,
    ArtifactMissing,
    StorageFull,
    StorageRefused,
    StorageUnavailable,
)

HELLO = b"longstride keeper 1\n"
ERRORS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        *(ExecutionCancelled, SandboxFailed, WorkspaceCorrupt),
        *(ArtifactCorrupt, ArtifactMissing, StorageFull, StorageRefused, StorageUnavailable),
    )
}
"""What ``Executor.execute`` raises, by name. Anything else is a bug, and arrives as ``SandboxFailed``."""


class KeptCall(BaseModel):
    """The arguments of ``Executor.execute``, and where its spans belong."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task_id: str
    session_id: str
    tenant: str
    traceparent: str | None
    command: ExecuteAction

    def line(self) -> bytes:
        """For the socket."""
        return self.model_dump_json().encode() + b"\n"


class KeptAnswer(BaseModel):
    """What it returned, or raised."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    executed: ActionExecuted | None = None
    error: str | None = None
    """A key of ``ERRORS``."""
    text: str = ""

    @classmethod
    def of_error(cls, error: Exception) -> "KeptAnswer":
        """By name, where it is one of those that are known."""
        name = type(error).__name__
        known = name in ERRORS
        return cls(error=name if known else SandboxFailed.__name__, text=str(error) if known else f"{name}: {error}")

    def line(self) -> bytes:
        """For the socket."""
        return self.model_dump_json().encode() + b"\n"

    def result(self) -> ActionExecuted:
        """Return or raise, as the call did."""
        if self.error is not None:
            raise ERRORS[self.error](self.text)
        assert self.executed is not None, "one or the other"
        return self.executed
