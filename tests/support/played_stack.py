"""The real planner on a real database, with a script in place of broker, model and tools."""

import threading
from collections.abc import Callable
from types import TracebackType

from longstride.contracts.envelope import Envelope, decode
from longstride.contracts.model import Contract
from longstride.contracts.v1.action import Action, Observation, Usage
from longstride.contracts.v1.commands import ExecuteAction, Generate
from longstride.contracts.v1.events import ActionExecuted, Generated
from longstride.messaging.commands import QueuedCommands
from longstride.messaging.handling import DeliveryInfo
from longstride.messaging.outbox import Outbox
from longstride.storage.artifacts import ArtifactStore
from longstride.storage.database import Database
from longstride.tools.registry import builtin_tools
from services.planner.handlers import Planner, handlers

Answer = Contract | None
Script = Callable[[Envelope, Contract], Answer]
"""(command's envelope, command) → its answer; ``None``: nobody answers."""


class PlayedStack:
    """Carries what lies in the outbox to the planner, or to the script. ``turn`` by hand, or a thread inside ``with``."""

    def __init__(self, database_url: str, artifacts: ArtifactStore, script: Script) -> None:
        self.database = Database(database_url, notify_outbox=False)
        outbox, tools = Outbox(), builtin_tools().names
        self._handlers = handlers(Planner(artifacts, outbox, QueuedCommands(outbox), tools=tools, capacity=8))
        self._script = script
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def turn(self) -> int:
        """Handle what is due; returns how many messages."""
        with self.database.begin() as uow:
            due = uow.outbox.claim(50)
            uow.outbox.delete([row.id for row in due])
        for row in due:
            if row.carrier != "reply":
                self._handle(decode(row.wire.encode()))
        return len(due)

    def play(self) -> None:
        """Until nothing is due any more."""
        while self.turn():
            pass

    def _handle(self, envelope: Envelope) -> None:
        message = envelope.message()
        handler = self._handlers.get(envelope.type)
        if handler is None:
            answer = self._script(envelope, message)
            if answer is None:
                return
            envelope, message = envelope.follow(answer), answer
            handler = self._handlers[envelope.type]
        with self.database.begin() as uow:
            if uow.inbox.add("planner", envelope.message_id):
                handler(envelope, message, uow, DeliveryInfo("longstride.planner"))

    def _serve(self) -> None:
        while not self._stop.is_set():
            if not self.turn():
                self._stop.wait(0.01)

    def __enter__(self) -> "PlayedStack":
        self._thread.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(10)
        self.database.close()


Turn = tuple[Action, ActionExecuted | None]


def turns(*script: tuple[Action, Observation | ActionExecuted | None]) -> Script:
    """A task's actions and their results, by step; beyond them nobody answers."""

    def answer(_: Envelope, command: Contract) -> Answer:
        step = getattr(command, "step", 0)
        if not 1 <= step <= len(script):
            return None
        action, result = script[step - 1]
        if isinstance(command, Generate):
            usage = Usage(input_tokens=100, output_tokens=20)
            return Generated(step=step, text="…", action=action, policy="played", usage=usage)
        assert isinstance(command, ExecuteAction)
        if isinstance(result, Observation):
            return ActionExecuted(step=step, observation=result)
        return result and result.model_copy(update={"step": step})

    return answer
