"""The unit of work: everything one transaction may touch, one repository a noun."""

from collections.abc import Callable

from longstride.storage.artifact_rows import ArtifactRows
from longstride.storage.attempts import Attempts
from longstride.storage.audit import Audit
from longstride.storage.dead_letters import DeadLetters
from longstride.storage.delivery_failures import DeliveryFailures
from longstride.storage.events import Events
from longstride.storage.id_block import IdBlock
from longstride.storage.inbox import Inbox
from longstride.storage.outbox import Outbox
from longstride.storage.policies import Policies
from longstride.storage.rewards import Rewards
from longstride.storage.spans import Spans
from longstride.storage.steps import Steps
from longstride.storage.tasks import Tasks
from longstride.storage.timers import Timers
from longstride.storage.tool_rules import ToolRulesets
from longstride.storage.training_ledger import TrainingLedger
from longstride.storage.trajectories import Trajectories
from longstride.storage.transaction import Transaction
from longstride.storage.workers import Workers


class UnitOfWork:
    """One open transaction, made by ``Database.begin``. For one thread."""

    def __init__(self, transaction: Transaction, outbox_ids: IdBlock, notify_outbox: bool) -> None:
        self._transaction = transaction
        self._after_commit: list[Callable[[], None]] = []
        self.tasks = Tasks(transaction)
        self.events = Events(transaction)
        self.attempts = Attempts(transaction)
        self.outbox = Outbox(transaction, outbox_ids, notify_outbox)
        self.inbox = Inbox(transaction)
        self.timers = Timers(transaction)
        self.dead_letters = DeadLetters(transaction)
        self.delivery_failures = DeliveryFailures(transaction)
        self.steps = Steps(transaction)
        self.artifacts = ArtifactRows(transaction)
        self.trajectories = Trajectories(transaction)
        self.rewards = Rewards(transaction)
        self.policies = Policies(transaction)
        self.training_ledger = TrainingLedger(transaction)
        self.audit = Audit(transaction)
        self.tool_rules = ToolRulesets(transaction, self.audit)
        self.spans = Spans(transaction)
        self.workers = Workers(transaction)

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once the transaction has committed, never otherwise."""
        self._after_commit.append(callback)

    def flush(self) -> None:
        """Send what is queued and wait, so that its conflicts are raised here rather than at the commit."""
        self._transaction.flush()

    def committing(self) -> None:
        """For ``Database.begin``: the commit comes next. What others queue behind is written now, to be locked no longer."""
        self.audit.write()

    def committed(self) -> None:
        """For ``Database.begin``: the commit is done."""
        for callback in self._after_commit:
            callback()
