"""Following an update of a policy from the question to the version, or to the refusal."""

import json
import time
from dataclasses import dataclass

from longstride.client.errors import ClientError, NoAnswer
from longstride.client.reader import FIRST_POLL_S, LONGEST_POLL_S, Reader
from longstride.storage.dead_letters import DeadLetter
from longstride.storage.policies import PolicyVersion

LETTERS = 200
"""Dead letters looked through, the newest first."""


class UpdateFailed(ClientError):
    """The update came to nothing."""


@dataclass(frozen=True, slots=True)
class PolicyUpdate:
    """An update that was asked for."""

    reader: Reader
    policy: str
    batch_id: str
    message_id: str
    """Of the command."""

    def outcome(self, timeout_s: float | None = None) -> PolicyVersion:
        """Wait for the version.

        Raises:
            UpdateFailed: it was refused, its job died for good, or no model-worker can serve its version.
            NoAnswer: neither happened in time; the update goes on.
        """
        deadline = time.monotonic() + timeout_s if timeout_s is not None else float("inf")
        pause = FIRST_POLL_S
        while (version := self._look()) is None:
            if time.monotonic() > deadline:
                raise NoAnswer(
                    f"the update of {self.policy} has not ended within {timeout_s:g} s; it goes on. Does a trainer run?"
                )
            time.sleep(pause)
            pause = min(pause * 1.5, LONGEST_POLL_S)
        return version

    def _look(self) -> PolicyVersion | None:
        with self.reader.transaction() as uow:
            open_ = uow.training_ledger.running(self.policy) == self.batch_id
            # Read after the ledger: a version is there before its batch is closed.
            version = uow.policies.by_batch(self.batch_id)
            letter = next(filter(self._ours, uow.dead_letters.list(limit=LETTERS)), None)
        if letter is not None:
            raise UpdateFailed(f"{letter.reason}; once that is mended: longstride dead-letters replay {letter.id}")
        if version is None and not open_:
            raise UpdateFailed(
                f"the update of {self.policy} on {self.batch_id} was refused; the trainer's log says why,"
                " and its rollouts are not offered again: make new groups"
            )
        return version

    def _ours(self, letter: DeadLetter) -> bool:
        """The command itself, or the news of its version."""
        return letter.message_id == self.message_id or (
            letter.type == "policy_published" and _batch(letter) == self.batch_id
        )


def _batch(letter: DeadLetter) -> object:
    try:
        return json.loads(letter.body)["body"]["batch_id"]
    except (ValueError, LookupError, TypeError):
        return None
