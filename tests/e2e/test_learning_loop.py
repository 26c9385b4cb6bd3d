"""The loop closes: rollouts are rewarded, an update trains on them, and its version answers the next call without a restart."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from longstride.contracts.envelope import seal
from longstride.contracts.v1.check import AnswerCheck
from longstride.contracts.v1.commands import Sampling, SubmitTask
from longstride.contracts.v1.input_file import InputFile
from longstride.contracts.v1.limits import Limits
from longstride.messaging.outbox import Outbox
from longstride.observability import names
from longstride.storage.minio_artifacts import MinioArtifacts
from longstride.storage.policies import PolicyVersion
from longstride.training.batches import NothingToTrain, ask_for_update
from longstride.training.weights import fetch, open_manifest, read_probe
from tests.support import versions
from tests.support.deployment import ROOT, Deployment, deployed
from tests.support.eventually import eventually
from tests.support.servers import Servers

ORDERS = InputFile(path="orders.csv", text=(ROOT / "examples" / "shop" / "orders.csv").read_text())
QUESTIONS = (
    "What is the total of amount in orders.csv?",
    "Find the highest amount in orders.csv.",
    "What is the average of amount in orders.csv?",
)
ROLLOUTS = 6


@pytest.fixture
def school(servers: Servers, database_url: str, amqp_url: str, bucket: str, tmp_path: Path) -> Iterator[Deployment]:
    """All services and the trainer, which have learned nothing yet."""
    everything = ("planner", "tool-executor", "model-worker", "telemetry", "trainer")
    with deployed(servers, database_url, amqp_url, bucket, tmp_path, *everything) as running:
        yield running


def _answers() -> dict[str, float]:
    """Worked out here, from the file, by other means than the agent's."""
    rows = [line.split(",") for line in (ORDERS.text or "").strip().splitlines()]
    column = [float(row[rows[0].index("amount")]) for row in rows[1:]]
    total, highest, average = QUESTIONS
    return {total: sum(column), highest: max(column), average: sum(column) / len(column)}


@pytest.mark.timeout(400)
def test_an_update_from_rollouts_is_served_without_a_restart(
    school: Deployment, bucket: str, database_url: str, tmp_path: Path
) -> None:
    task_ids = [
        school.submit(_rollout(question, answer, f"group {number}", seed))
        for number, (question, answer) in enumerate(_answers().items())
        for seed in range(ROLLOUTS)
    ]
    school.ended(*task_ids, timeout_s=300)
    eventually(lambda: _recorded(school, task_ids))
    base = _latest(school)
    batch = _updated(school, base)
    with school.database.begin() as uow:
        behind = uow.training_ledger.trained_into("builtin", base + 1) or eventually(
            lambda: _ledger(school, base + 1), 30
        )
        version = uow.policies.by_batch(batch)
        assert version is not None
        assert version.parent_version == base
    assert set(behind) <= set(task_ids)
    assert len(behind) >= 2
    eventually(lambda: _serves(school, base + 1))
    loaded = eventually(lambda: _loads(database_url).get(base + 1))
    assert 0 < loaded["attributes"][names.PROBE_GAP] < 1e-3
    with pytest.raises(NothingToTrain):
        _ask(school, bucket)
    _publish_spoiled(school, bucket, base + 2, tmp_path)
    (letter,) = eventually(lambda: _letters(school))
    assert (
        f"builtin@{base + 2} is not served: the engine's log-probabilities differ from the trainer's" in letter.reason
    )
    assert _serves(school, base + 1)
    assert eventually(lambda: _loads(database_url).get(base + 2), 30)["status"] == "error"


def _updated(school: Deployment, base: int) -> str:
    """By the command line, which waits for the version; returns the batch."""
    told = subprocess.run(
        [sys.executable, "-m", "longstride.client.main", "policy", "update", "--wait", "--timeout", "180", "--json"],
        cwd=school.folder,
        env=school.environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert told.returncode == 0, told.stderr
    asked, published = map(json.loads, told.stdout.splitlines())
    assert (asked["base_version"], published["version"], published["parent_version"]) == (base, base + 1, base)
    assert published["batch_id"] == asked["batch_id"]
    return str(asked["batch_id"])


def _rollout(question: str, answer: float, group: str, seed: int) -> SubmitTask:
    return SubmitTask(
        instruction=question,
        inputs=(ORDERS,),
        checks=(AnswerCheck(number=answer, tolerance=0.006),),
        policy="builtin",
        sampling=Sampling(temperature=1.5, seed=seed),
        limits=Limits(steps=8, submissions=1),
        group_id=group,
    )


def _recorded(school: Deployment, task_ids: list[str]) -> bool:
    with school.database.begin() as uow:
        return all(uow.trajectories.get(task_id) is not None for task_id in task_ids)


def _latest(school: Deployment) -> int:
    with school.database.begin() as uow:
        latest = uow.policies.latest("builtin")
        assert latest is not None, "the trainer publishes the version that ships"
        return latest.version


def _ledger(school: Deployment, version: int) -> list[str]:
    with school.database.begin() as uow:
        return uow.training_ledger.trained_into("builtin", version)


def _ask(school: Deployment, bucket: str) -> str:
    """As ``longstride policy update`` does."""
    with school.database.begin() as uow:
        envelope = ask_for_update(uow, Outbox(), _store(school, bucket), "builtin")
    return str(envelope.body["batch_id"])


def _store(school: Deployment, bucket: str) -> MinioArtifacts:
    keys = [school.environment[f"LONGSTRIDE_S3_{name}"] for name in ("ENDPOINT", "ACCESS_KEY", "SECRET_KEY")]
    return MinioArtifacts(*keys, bucket)


def _publish_spoiled(school: Deployment, bucket: str, version: int, scratch: Path) -> None:
    """The version before, changed after its probe was made, under hashes that fit."""
    store = _store(school, bucket)
    with school.database.begin() as uow:
        base = uow.policies.get("builtin", version - 1)
        assert base is not None
    manifest = open_manifest(base.manifest, store, policy="builtin", version=version - 1)
    probe, source = read_probe(manifest, store), fetch(manifest, store, scratch)
    assert probe is not None
    event = versions.publish_version(version, store, probe=probe, source=source, spoil=versions.louder)
    with school.database.begin() as uow:
        uow.policies.publish(PolicyVersion("builtin", version, event.manifest))
        Outbox().post(uow, seal(event))


def _letters(school: Deployment) -> list[Any]:
    with school.database.begin() as uow:
        return uow.dead_letters.list()


def _loads(database_url: str) -> dict[int, dict[str, Any]]:
    """Version → the span of its being put into service."""
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT attributes, status FROM spans WHERE name = 'load_policy builtin'").fetchall()
    return {int(a[names.POLICY_VERSION]): {"attributes": a, "status": status} for a, status in rows}


def _serves(school: Deployment, version: int) -> bool:
    """Whether a fresh task is answered by a version."""
    submit = SubmitTask(instruction=QUESTIONS[0], inputs=(ORDERS,), policy="builtin", limits=Limits(steps=1))
    task_id = school.submit(submit)
    school.ended(task_id)
    return school.steps(task_id)[0].policy_version == version
