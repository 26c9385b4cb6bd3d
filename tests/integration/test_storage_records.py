"""What is kept for people and for learning: steps, artifacts, trajectories, rewards, policies, spans, workers."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from longstride.contracts.artifact import ArtifactRef, ref_for
from longstride.observability.span_record import SpanRecord
from longstride.storage.database import Database
from longstride.storage.errors import VersionConflict
from longstride.storage.policies import PolicyVersion
from longstride.storage.trajectories import StoredTrajectory
from tests.support.tasks import insert


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


def a_ref(text: str = "x", kind: str = "output", session: str = "ses_1") -> ArtifactRef:
    return ref_for(text.encode(), session=session, kind=kind, media_type="text/plain")


# Steps


def test_a_step_is_filled_in_bit_by_bit(database: Database) -> None:
    task_id = insert(database)
    with database.begin() as uow:
        uow.steps.upsert(task_id, 1)
        uow.steps.upsert(task_id, 2, status="acting", tool="shell", arguments={"run": "ls"}, input_tokens=5)
        uow.steps.upsert(task_id, 2, status="ok", observation="a.csv", cost_usd=0.5)
    with database.begin() as uow:
        first, second = uow.steps.for_task(task_id)
        assert (first.step, first.status, first.tool) == (1, "generating", None)
        assert (second.status, second.tool, second.arguments) == ("ok", "shell", {"run": "ls"})
        assert (second.observation, second.input_tokens, second.cost_usd) == ("a.csv", 5, 0.5)
        uow.steps.clear(task_id)
        assert uow.steps.for_task(task_id) == []


def test_a_column_can_be_emptied(database: Database) -> None:
    task_id = insert(database)
    with database.begin() as uow:
        uow.steps.upsert(task_id, 1, arguments={"a": 1}, tool="shell")
        uow.steps.upsert(task_id, 1, arguments=None, tool=None)
        (step,) = uow.steps.for_task(task_id)
        assert (step.arguments, step.tool) == (None, None)


def test_an_unknown_column_is_refused(database: Database) -> None:
    with pytest.raises(ValueError, match="steps have no column colour"), database.begin() as uow:
        uow.steps.upsert("task_1", 1, colour="red")  # type: ignore[call-arg]


# Artifacts


def test_the_same_content_may_be_referred_to_by_many(database: Database) -> None:
    task_id, other = insert(database), insert(database)
    ref = a_ref()
    with database.begin() as uow:
        for name in ("a.csv", "b.csv", "a.csv"):
            uow.artifacts.add(ref, session_id="ses_1", kind="output", task_id=task_id, step=3, name=name)
        uow.artifacts.add(ref, session_id="ses_1", kind="output", task_id=other, step=1, name="a.csv")
        uow.artifacts.add(ref, session_id="ses_1", kind="output")
    with database.begin() as uow:
        assert [(e.name, e.step, e.ref) for e in uow.artifacts.for_task(task_id)] == [
            ("a.csv", 3, ref),
            ("b.csv", 3, ref),
        ]
        assert uow.artifacts.for_task(task_id, kind="workspace") == []
        assert len(uow.artifacts.for_session("ses_1")) == 4
        assert uow.artifacts.known([ref.key, "ses_1/output/nothing"]) == {ref.key}
        assert uow.artifacts.known([]) == set()


# Trajectories and rewards


def a_trajectory(database: Database, group_id: str | None = None, **changes: object) -> StoredTrajectory:
    task_id = insert(database, group_id=group_id, status="succeeded", outcome="succeeded", ended_at=datetime.now(UTC))
    ref = a_ref(task_id, "trajectory")
    plain = StoredTrajectory(task_id, "ses_1", "default", "builtin", "succeeded", "checks_passed", ref, group_id, 3)
    trajectory = replace(plain, **changes)  # type: ignore[arg-type]
    with database.begin() as uow:
        uow.trajectories.add(trajectory)
    return trajectory


def reward(database: Database, task_id: str, value: float | None = 1.0) -> int:
    with database.begin() as uow:
        return uow.rewards.add(task_id, value, [{"name": "check", "score": value}], "checks")


def test_a_trajectory_comes_back_and_keeps_its_object(database: Database) -> None:
    trajectory = a_trajectory(database, "group")
    with database.begin() as uow:
        uow.trajectories.add(replace(trajectory, outcome="failed"))
        found = uow.trajectories.get(trajectory.task_id)
        assert found is not None
        assert replace(found, created_at=None) == trajectory
        assert uow.artifacts.known([trajectory.ref.key]) == {trajectory.ref.key}
        assert uow.trajectories.get("task_nowhere") is None


def test_siblings_are_one_tenants_and_groups(database: Database) -> None:
    mine = [a_trajectory(database, "group").task_id for _ in range(2)]
    a_trajectory(database, "group", tenant="other")
    a_trajectory(database, "another")
    with database.begin() as uow:
        assert [t.task_id for t in uow.trajectories.for_group("default", "group")] == mine


def test_the_highest_version_of_a_reward_counts(database: Database) -> None:
    task_id = a_trajectory(database).task_id
    with database.begin() as uow:
        assert uow.rewards.latest(task_id) is None
        assert uow.rewards.add(task_id, None, [], "checks", reason="ended by infrastructure") == 1
        assert uow.rewards.add(task_id, 0.75, [{"name": "feedback", "score": 0.75}], "feedback", by="ada") == 2
    with database.begin() as uow:
        latest = uow.rewards.latest(task_id)
        assert latest is not None
        assert (latest.version, latest.value, latest.source, latest.by) == (2, 0.75, "feedback", "ada")
        assert latest.components == [{"name": "feedback", "score": 0.75}]
        assert [(r.value, r.reason) for r in uow.rewards.history(task_id)] == [
            (None, "ended by infrastructure"),
            (0.75, ""),
        ]


def test_judgements_at_once_get_a_version_each(database: Database) -> None:
    task_id = a_trajectory(database).task_id
    with ThreadPoolExecutor(4) as pool:
        versions = list(pool.map(lambda _: reward(database, task_id), range(8)))
    assert sorted(versions) == list(range(1, 9))


def test_what_has_no_trajectory_cannot_be_rewarded(database: Database) -> None:
    with pytest.raises(ValueError, match="task_nowhere has no trajectory"):
        reward(database, "task_nowhere")


def test_only_rewarded_sampled_unclaimed_trajectories_may_be_trained_on(database: Database) -> None:
    good, claimed, without_tokens, unrewarded, other_policy = (
        a_trajectory(database, **changes).task_id  # type: ignore[arg-type]
        for changes in ({}, {}, {"policy_version": None}, {}, {"policy": "another"})
    )
    for task_id in (good, claimed, without_tokens, other_policy):
        reward(database, task_id)
    reward(database, unrewarded, None)
    with database.begin() as uow:
        uow.training_ledger.claim("builtin", [claimed], "batch_0")
        assert [t.task_id for t in uow.trajectories.untrained("builtin", 10)] == [good]
        assert uow.trajectories.untrained("builtin", 10, least_version=4) == []


# Policies and the ledger


def a_policy(version: int, batch_id: str | None = None, text: str = "m") -> PolicyVersion:
    return PolicyVersion("builtin", version, a_ref(text, "manifest", "policies"), version - 1, batch_id, {"loss": 0.5})


def test_a_version_is_published_once_a_batch(database: Database) -> None:
    with database.begin() as uow:
        assert uow.policies.publish(a_policy(1, "batch_1"))
        assert not uow.policies.publish(a_policy(1, "batch_1"))
        assert not uow.policies.publish(a_policy(2, "batch_1"))
        assert uow.policies.publish(a_policy(2, "batch_2", "other"))
    with database.begin() as uow:
        latest = uow.policies.latest("builtin")
        assert latest is not None
        assert replace(latest, created_at=None) == a_policy(2, "batch_2", "other")
        found = uow.policies.get("builtin", 1)
        assert found is not None
        assert found.batch_id == "batch_1"
        assert [p.version for p in uow.policies.list("builtin")] == [1, 2]
        assert uow.policies.list("nothing") == []
        assert uow.policies.latest("nothing") is None
        assert uow.artifacts.known([found.manifest.key]) == {found.manifest.key}


@pytest.mark.parametrize("rival", [a_policy(1, "batch_2"), a_policy(1, None, "other")])
def test_another_policy_under_the_same_version_is_a_conflict(database: Database, rival: PolicyVersion) -> None:
    with database.begin() as uow:
        uow.policies.publish(a_policy(1, "batch_1"))
    with pytest.raises(VersionConflict, match="version 1 of policy 'builtin'"), database.begin() as uow:
        uow.policies.publish(rival)


def test_a_trajectory_is_trained_on_once_a_policy(database: Database) -> None:
    with database.begin() as uow:
        ledger = uow.training_ledger
        assert ledger.claim("builtin", ["t2", "t1"], "batch_1") == ["t1", "t2"]
        assert ledger.claim("builtin", ["t2", "t3"], "batch_2") == ["t3"]
        assert ledger.claim("builtin", ["t1", "t2"], "batch_1") == ["t1", "t2"]
        assert ledger.claim("another", ["t1"], "batch_3") == ["t1"]
        assert ledger.trained("builtin", ["t1", "t9"]) == {"t1"}
        ledger.published("builtin", "batch_1", 5)
        assert ledger.trained_into("builtin", 5) == ["t1", "t2"]
        assert ledger.running("builtin") == "batch_2"
        assert ledger.release("builtin", "batch_1") == 0
        assert ledger.release("builtin", "batch_2") == 1
        assert ledger.claim("builtin", ["t3"], "batch_4") == ["t3"]


def test_of_two_updates_at_once_each_trajectory_goes_to_one(database: Database) -> None:
    ids = [f"t{number}" for number in range(50)]

    def claim(batch_id: str) -> list[str]:
        with database.begin() as uow:
            return uow.training_ledger.claim("builtin", ids[:: 1 if batch_id == "a" else -1], batch_id)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(claim, "ab")
    assert sorted(first + second) == sorted(ids)


# Spans and workers


def a_span(number: int, task_id: str | None = "task_1", trace: str = "a") -> SpanRecord:
    return SpanRecord(
        trace * 32, f"{number:016x}", None, "chat", "client", "planner", task_id, 1, "ok", None, number, number + 5,
        {"gen_ai.system": "builtin"}, [{"trace_id": "b" * 32}], [{"name": "first_token", "at_ns": 2}],
    )  # fmt: skip


def test_spans_come_back_in_the_order_of_their_start(database: Database) -> None:
    spans = [a_span(3), a_span(1), a_span(2, task_id=None), a_span(9, trace="c")]
    with database.begin(durable=False) as uow:
        uow.spans.add_many(spans)
        uow.spans.add_many([replace(spans[0], name="changed")])
    with database.begin() as uow:
        assert uow.spans.for_task("task_1") == [spans[1], spans[0], spans[3]]
        assert uow.spans.for_trace("a" * 32) == [spans[1], spans[2], spans[0]]
        uow.spans.add_many([])


def test_old_spans_are_forgotten(database: Database) -> None:
    now_ns = int(datetime.now(UTC).timestamp() * 1e9)
    with database.begin() as uow:
        uow.spans.add_many([a_span(1), a_span(now_ns)])
        assert uow.spans.prune(timedelta(hours=1)) == 1
        assert [span.started_ns for span in uow.spans.for_task("task_1")] == [now_ns]


def test_a_worker_is_seen_until_it_retires_or_goes_silent(database: Database) -> None:
    for _ in range(2):
        with database.begin(durable=False) as uow:
            uow.workers.beat("host-1", "planner")
    with database.begin() as uow:
        (worker,) = uow.workers.all()
        assert (worker.incarnation, worker.service) == ("host-1", "planner")
        assert worker.seen_at > worker.started_at
        assert uow.workers.stale(60) == []
        assert [w.incarnation for w in uow.workers.stale(0)] == ["host-1"]
        uow.workers.retire("host-1")
        assert uow.workers.all() == []


def test_a_refused_batch_is_over_and_its_trajectories_stay_claimed(database: Database) -> None:
    with database.begin() as uow:
        uow.training_ledger.claim("builtin", ["t-refused"], "b-refused")
        assert uow.training_ledger.running("builtin") == "b-refused"
        uow.training_ledger.refuse("builtin", "b-refused", "the trainer does not see the policy that acted")
        assert uow.training_ledger.running("builtin") is None
        assert uow.training_ledger.trained("builtin", ["t-refused"]) == {"t-refused"}
        assert uow.training_ledger.release("builtin", "b-refused") == 1, "not published: a person may still free it"
