"""Following an update of a policy in a real database."""

import threading
from collections.abc import Iterator

import pytest

from longstride.client.errors import NoAnswer
from longstride.client.policy_update import PolicyUpdate, UpdateFailed
from longstride.client.reader import Reader
from longstride.contracts.artifact import ref_for
from longstride.contracts.envelope import seal
from longstride.contracts.v1.commands import UpdatePolicy
from longstride.contracts.v1.events import PolicyPublished
from longstride.storage.database import Database
from longstride.storage.policies import PolicyVersion

MANIFEST = ref_for(b"{}", session="policies", kind="policy")
COMMAND = seal(UpdatePolicy(batch_id="batch_1", batch=MANIFEST, policy="builtin", base_version=0))
VERSION = PolicyVersion("builtin", 1, MANIFEST, 0, "batch_1", {"loss": 0.5})


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """Where an update was asked for."""
    database = Database(database_url)
    with database.begin() as uow:
        uow.policies.publish(PolicyVersion("builtin", 0, MANIFEST))
        uow.training_ledger.claim("builtin", ["task_1", "task_2"], "batch_1")
    yield database
    database.close()


@pytest.fixture
def asked(database: Database, database_url: str) -> Iterator[PolicyUpdate]:
    reader = Reader(database_url, lambda _: None)
    yield PolicyUpdate(reader, "builtin", "batch_1", COMMAND.message_id)
    reader.close()


def test_its_version_is_the_outcome(database: Database, asked: PolicyUpdate) -> None:
    def publish() -> None:
        with database.begin() as uow:
            uow.policies.publish(VERSION)

    later = threading.Timer(0.3, publish)
    later.start()
    found = asked.outcome(60)
    later.join()
    assert (found.version, found.batch_id, found.metrics) == (1, "batch_1", {"loss": 0.5})
    with database.begin() as uow:
        uow.training_ledger.published("builtin", "batch_1", 1)
    assert asked.outcome(0).version == 1


def test_a_refusal_is_an_error(database: Database, asked: PolicyUpdate) -> None:
    with database.begin() as uow:
        uow.training_ledger.refuse("builtin", "batch_1", "the trainer and the engine disagree")
    with pytest.raises(UpdateFailed, match="batch_1 was refused; the trainer's log says why"):
        asked.outcome(60)


def test_a_job_that_died_for_good_is_an_error_with_its_reason(database: Database, asked: PolicyUpdate) -> None:
    with database.begin() as uow:
        uow.dead_letters.add("update_policy", "died 4 times", COMMAND.encode(), {}, COMMAND.message_id, COMMAND.type)
    with pytest.raises(UpdateFailed, match=r"died 4 times; once that is mended: longstride dead-letters replay \d+"):
        asked.outcome(60)


def test_a_version_that_cannot_be_served_is_an_error(database: Database, asked: PolicyUpdate) -> None:
    news = seal(PolicyPublished(policy="builtin", policy_version=1, manifest=MANIFEST, batch_id="batch_1"))
    other = seal(PolicyPublished(policy="builtin", policy_version=0, manifest=MANIFEST, batch_id="batch_0"))
    with database.begin() as uow:
        uow.policies.publish(VERSION)
        uow.dead_letters.add("engine", "an older one", other.encode(), {}, other.message_id, other.type)
        uow.dead_letters.add("engine", "not even JSON", b"{", {}, None, "policy_published")
    assert asked.outcome(0).version == 1
    with database.begin() as uow:
        uow.dead_letters.add("engine", "builtin@1 is not served", news.encode(), {}, news.message_id, news.type)
    with pytest.raises(UpdateFailed, match="builtin@1 is not served"):
        asked.outcome(60)


def test_patience_has_an_end(asked: PolicyUpdate) -> None:
    with pytest.raises(NoAnswer, match=r"has not ended within 0\.1 s; it goes on"):
        asked.outcome(0.1)
