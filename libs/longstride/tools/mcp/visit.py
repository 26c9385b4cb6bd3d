"""One visit to a server: it is started in a sandbox, talked with, hung up on, and gone."""

import logging
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from longstride.sandbox.base import Cancellation, Command, Execution, SandboxBackend
from longstride.sandbox.errors import ExecutionCancelled
from longstride.tools.mcp.frames import Frames, Nonsense
from longstride.tools.mcp.session import Phase, Session, Trouble, open_session
from longstride.tools.mcp.wire import Pen, Wire

logger = logging.getLogger(__name__)

GRACE_S = 2.0
"""For a server to end once its input is closed and it has answered."""

T = TypeVar("T")
Script = Callable[[Session], Awaitable[T]]
"""What is said to the server."""


@dataclass
class Ending:
    """When the sandbox is to be killed: the call was cancelled, or the conversation is over and the server does not go."""

    cancelled: Cancellation
    _due: float | None = None

    def is_set(self) -> bool:
        """Whether it is to be killed now."""
        return self.cancelled.is_set() or (self._due is not None and time.monotonic() >= self._due)

    def come(self, grace_s: float) -> None:
        """Let it be killed after so long."""
        self._due = time.monotonic() + grace_s


@dataclass(frozen=True, slots=True)
class Visit(Generic[T]):
    """What came of it: an ``answer``, or ``trouble``."""

    answer: T | None
    trouble: Trouble | None
    execution: Execution
    noise: str
    """The start of what the server printed among its messages."""


def visit(backend: SandboxBackend, command: Command, script: Script[T], cancelled: Cancellation) -> Visit[T]:
    """Run the server in a sandbox and the script against it. Blocks.

    Raises:
        ExecutionCancelled: it was cancelled from outside.
        IsolationUnavailable, SandboxFailed: as ``backend.run``.
    """
    talk = Talk(script, Ending(cancelled))
    thread = threading.Thread(target=talk.run, name="mcp-talk", daemon=True)
    thread.start()
    try:
        execution = backend.run(command, talk.ending, talk.wire)
    finally:
        talk.wire.end()
        thread.join()
    if cancelled.is_set():
        raise ExecutionCancelled
    return Visit(talk.answer, talk.trouble, execution, talk.frames.first_noise)


@dataclass
class Talk(Generic[T]):
    """The side of the visit that speaks."""

    script: Script[T]
    ending: Ending
    wire: Wire = field(default_factory=Wire)
    frames: Frames = field(default_factory=Frames)
    answer: T | None = None
    trouble: Trouble | None = None
    session: Session | None = None

    @property
    def phase(self) -> Phase:
        """What is being said."""
        return self.session.phase if self.session else "start"

    def run(self) -> None:
        """Speak as soon as somebody listens; at the end hang up, and see that the server goes."""
        stdin = self.wire.wait_begun()
        if stdin is None:
            return
        pen = Pen(stdin)
        try:
            anyio.run(self._talk, pen)
        except ExceptionGroup as broken:
            # The SDK's tasks should survive whatever a server sends; one that does not ends this visit alone.
            logger.warning("a conversation with an MCP server broke", exc_info=broken)
            self.trouble = self.trouble or Trouble(self.phase, f"the conversation broke: {broken.exceptions[0]!r}")
        finally:
            pen.hang_up()
            self.ending.come(0 if self.trouble else GRACE_S)
            pen.join()

    async def _talk(self, pen: Pen) -> None:
        with self.wire.attached():
            await self._converse(pen)

    async def _converse(self, pen: Pen) -> None:
        to_session, heard = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        said, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        async with to_session, heard, said, from_session, anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen, to_session)
            tasks.start_soon(_speak, from_session, pen)
            async with open_session(heard, said) as session:
                self.session = Session(session)
                await self._follow(self.session)
            tasks.cancel_scope.cancel()

    async def _follow(self, session: Session) -> None:
        try:
            self.answer = await self.script(session)
        except Trouble as trouble:
            self.trouble = self.trouble or trouble

    async def _listen(self, to_session: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Until the server ends, or says what no server says; then the session hears that the connection is closed."""
        async with to_session:
            try:
                while data := await self.wire.read():
                    for message in self.frames.feed(data):
                        await to_session.send(SessionMessage(message))
            except Nonsense as nonsense:
                self.trouble = Trouble(self.phase, str(nonsense))
            except anyio.BrokenResourceError:
                return  # the session has what it wanted


async def _speak(from_session: MemoryObjectReceiveStream[SessionMessage], pen: Pen) -> None:
    async for item in from_session:
        pen.put(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
