from datetime import UTC, datetime
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from longstride.agent.events import ActionObserved, ActionProposed
from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.action import Action, Observation, Usage
from longstride.contracts.v1.commands import SubmitTask
from longstride.contracts.v1.events import ActionExecuted, Generated, TaskEnded
from longstride.contracts.v1.tokens import TokenRecord
from longstride.learning.samples import Batch, Candidate, build_batch
from longstride.learning.segment import BrokenChain, Segment, StoredRecord, Turn, flatten, segments
from longstride.learning.trajectory import Exchange, TaskIdentity, Trajectory, assemble, pair

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def ref(name: str) -> ArtifactRef:
    digest = sha256(name.encode()).hexdigest()
    return ArtifactRef(key=f"session/tokens/{digest}", sha256=digest, size=1)


def stored(name: str, prompt: list[int], output: list[int], prefix: str | None = None, **fields) -> StoredRecord:
    fields = {"mask": [1] * len(output), "temperature": 1.0, "policy": "builtin", "policy_version": 3, **fields}
    logprobs = fields.pop("logprobs", [-0.5] * len(output))
    record = TokenRecord(
        prefix=ref(prefix) if prefix else None, prompt_ids=prompt, output_ids=output, logprobs=logprobs, **fields
    )
    return StoredRecord(ref(name), record)


def episode(task_id: str, records: list[StoredRecord], *, group: str | None = "g", instruction="sum", tenant="t"):
    exchanges = [
        Exchange(
            Generated(
                step=i,
                text="",
                action=Action(tool="shell"),
                tokens=s.ref,
                policy=s.record.policy,
                policy_version=s.record.policy_version,
            )
        )
        for i, s in enumerate(records, 1)
    ]
    task = SubmitTask(instruction=instruction, group_id=group)
    ended = TaskEnded(outcome="failed", reason="stuck")
    return assemble(TaskIdentity(task_id, "session_1", tenant), task, exchanges, ended)


def candidate(task_id: str, reward: float | None = 1.0, **options) -> Candidate:
    fields = {k: options.pop(k) for k in ("temperature", "top_p", "mask", "policy", "policy_version") if k in options}
    records = options.pop("records", None) or [stored(task_id, [1, 2], [3, 4], **fields)]
    return Candidate(episode(task_id, records, **options), reward, records)


def batch(*candidates: Candidate, **options) -> Batch:
    return build_batch(candidates, **{"policy": "builtin", "base_version": 3, **options})


# --- trajectory ---


def test_a_trajectory_is_assembled_from_the_committed_steps():
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    exchanges = [
        Exchange(Generated(step=1, text="?", format_error="not JSON", tokens=ref("1"), policy="p", policy_version=4)),
        Exchange(
            Generated(
                step=2,
                text="{}",
                action=Action(tool="shell"),
                tokens=ref("2"),
                policy="p",
                policy_version=3,
                usage=Usage(input_tokens=5),
            ),
            ActionExecuted(step=2, observation=Observation(status="failed", text="no"), usage=Usage(cpu_ms=7)),
            trace,
        ),
    ]
    task = SubmitTask(instruction="sum", group_id="g")
    ended = TaskEnded(outcome="failed", reason="stuck", trace_id="a" * 32)
    trajectory = assemble(TaskIdentity("task_1", "session_1", "acme"), task, exchanges, ended)
    assert trajectory.format_version == 1
    assert (trajectory.task_id, trajectory.tenant, trajectory.group_id) == ("task_1", "acme", "g")
    assert trajectory.instruction_sha256 == sha256(b"sum").hexdigest()
    assert (trajectory.policy, trajectory.policy_versions, trajectory.policy_version) == ("p", (3, 4), 3)
    first, second = trajectory.steps
    assert (first.tool, first.observation, first.trace_id) == (None, None, None)
    assert (second.tool, second.observation) == ("shell", "failed")
    assert (second.trace_id, second.span_id) == ("a" * 32, "b" * 16)
    assert (second.usage.input_tokens, second.usage.cpu_ms) == (5, 7)
    assert trajectory.rewards[0].value is None
    for left_out in (False, True):
        assert Trajectory.model_validate_json(trajectory.model_dump_json(exclude_none=left_out)) == trajectory


def test_steps_out_of_order_are_refused():
    generated = [Exchange(Generated(step=step, text="", policy="p")) for step in (2, 1)]
    with pytest.raises(ValueError, match="step 1 follows step 2"):
        assemble(
            TaskIdentity("t", "s"), SubmitTask(instruction="x"), generated, TaskEnded(outcome="failed", reason="stuck")
        )


def test_a_result_of_another_step_is_refused():
    exchange = Exchange(Generated(step=1, text="", policy="p"), ActionExecuted(step=2))
    with pytest.raises(ValueError, match="step 2 was paired with the action of step 1"):
        assemble(
            TaskIdentity("t", "s"), SubmitTask(instruction="x"), [exchange], TaskEnded(outcome="failed", reason="stuck")
        )


def test_answers_and_results_pair_by_step():
    answers = [ActionProposed(at=NOW, step=step, text="", policy="p") for step in (1, 2, 3)]
    results = [ActionObserved(at=NOW, step=step, observation=Observation(status="ok", text="")) for step in (3, 1)]
    one, two, three = pair(answers, results, {2: "00-x"})
    assert (one.result, two.result, three.result) == (results[1], None, results[0])
    assert (one.traceparent, two.traceparent) == (None, "00-x")
    with pytest.raises(ValueError, match="step 1 has two results"):
        pair(answers, [results[1], results[1]])
    with pytest.raises(ValueError, match=r"no answer: \[3\]"):
        pair(answers[:2], results)


# --- segments: token-in, token-out ---


def test_flatten_keeps_the_exact_ids_and_masks_what_was_not_sampled():
    first = stored("1", [10, 11], [20, 21, 22], mask=[1, 0, 1], logprobs=[-0.1, 0.0, -0.3]).record
    second = stored("2", [12, 13], [23], prefix="1", logprobs=[-0.4]).record
    ids, mask, logprobs = flatten([first, second])
    assert ids == [10, 11, 20, 21, 22, 12, 13, 23]
    assert mask == [0, 0, 1, 0, 1, 0, 0, 1]
    assert logprobs == [0, 0, -0.1, 0, -0.3, 0, 0, -0.4]


def test_a_growing_context_is_one_segment_with_a_turn_a_call():
    chain = [stored("1", [10], [20, 21]), stored("2", [11, 12], [22], prefix="1", policy_version=4, temperature=0.5)]
    (segment,) = segments(chain)
    assert segment.ids == (10, 20, 21, 11, 12, 22)
    assert segment.turns == (
        Turn(start=1, end=3, policy_version=3, temperature=1.0),
        Turn(start=5, end=6, policy_version=4, temperature=0.5),
    )


def test_a_rebuilt_context_opens_a_segment():
    one, two = segments([stored("1", [10], [20]), stored("2", [30, 31], [40])])
    assert (one.ids, two.ids) == ((10, 20), (30, 31, 40))


def test_a_call_that_continues_an_earlier_one_repeats_its_context_unmasked_once():
    first, second = segments(
        [stored("1", [10], [20]), stored("2", [11], [21], prefix="1"), stored("3", [12], [22], prefix="1")]
    )
    assert first.ids == (10, 20, 11, 21)
    assert second.ids == (10, 20, 12, 22)
    assert second.mask == (0, 0, 0, 1)
    assert second.logprobs == (0, 0, 0, -0.5)
    assert sum(s.trainable for s in (first, second)) == 3


@st.composite
def record_trees(draw) -> list[StoredRecord]:
    """Records that each start anew or continue any earlier one."""
    made: list[StoredRecord] = []
    for index in range(draw(st.integers(1, 6))):
        prefix = draw(st.sampled_from([None, *range(index)]))
        prompt = draw(st.lists(st.integers(0, 99), min_size=1, max_size=3))
        mask = draw(st.lists(st.integers(0, 1), min_size=1, max_size=3))
        made.append(
            stored(
                str(index),
                prompt,
                [100 * (index + 1) + at for at in range(len(mask))],
                prefix=None if prefix is None else str(prefix),
                mask=mask,
                logprobs=[-float(index + 1)] * len(mask),
            )
        )
    return made


@given(record_trees())
def test_every_sampled_token_is_trained_once_after_the_context_it_was_sampled_in(made):
    by_ref = {item.ref: item.record for item in made}

    def context(record: TokenRecord) -> list[int]:
        before = by_ref[record.prefix] if record.prefix else None
        earlier = [*context(before), *before.output_ids] if before else []
        return [*earlier, *record.prompt_ids]

    expected = {
        token: (context(item.record) + list(item.record.output_ids[:at]), logprob)
        for item in made
        for at, (token, logprob, chosen) in enumerate(
            zip(item.record.output_ids, item.record.logprobs, item.record.mask, strict=True)
        )
        if chosen
    }
    trained = [
        (segment.ids[at], (list(segment.ids[:at]), segment.logprobs[at]))
        for segment in segments(made)
        for at, chosen in enumerate(segment.mask)
        if chosen
    ]
    assert len(trained) == len(expected)
    assert dict(trained) == expected


def test_a_missing_prefix_is_a_broken_chain():
    with pytest.raises(BrokenChain, match="not among the rollout's records"):
        segments([stored("2", [11], [21], prefix="1")])


def test_a_sampled_token_outside_every_turn_is_refused():
    with pytest.raises(ValidationError, match="belongs to no turn"):
        Segment(ids=(1, 2), mask=(0, 1), logprobs=(0, -1), turns=())


# --- batches ---


def test_a_batch_groups_siblings_and_gives_each_rollout_its_advantage():
    rebuilt = [stored("b1", [1], [2]), stored("b2", [5], [6])]
    made = batch(candidate("a", 1.0), candidate("b", 0.0, records=rebuilt))
    (group,) = made.groups
    assert [s.task_id for s in group.samples] == ["a", "b"]
    assert [s.advantage for s in group.samples] == pytest.approx([2**-0.5, -(2**-0.5)], abs=1e-5)
    assert len(group.samples[1].segments) == 2
    assert made.dropped.total == 0
    assert Batch.model_validate_json(made.model_dump_json()) == made


def test_the_same_rollouts_in_any_order_make_the_same_batch():
    rollouts = [candidate("a", 1.0), candidate("b", 0.0), candidate("c", 0.5)]
    assert batch(*rollouts) == batch(*reversed(rollouts))


def test_the_identity_depends_on_rollouts_policy_and_base():
    pair = [candidate("a", 1.0, policy_version=3), candidate("b", 0.0, policy_version=3)]
    other = [candidate("a", 1.0), candidate("c", 0.0)]
    ids = {batch(*pair).batch_id, batch(*other).batch_id, batch(*pair, base_version=4, max_staleness=1).batch_id}
    assert len(ids) == 3


@pytest.mark.parametrize(
    ("rollout", "reason"),
    [
        (candidate("x", None), "unrewarded"),
        (candidate("a", 0.0), "already_trained"),
        (candidate("x", policy="remote:m"), "other_policy"),
        (candidate("x", temperature=0.0), "not_sampled"),
        (candidate("x", top_p=0.9), "not_sampled"),
        (candidate("x", policy_version=2), "stale"),
        (candidate("x", policy_version=4), "stale"),
        (candidate("x", mask=[0, 0]), "nothing_sampled"),
        (candidate("x", records=[stored("2", [1], [2], prefix="1")]), "incomplete"),
        (Candidate(episode("x", [stored("x", [1], [2])]), 1.0, []), "incomplete"),
        (Candidate(episode("x", []), 1.0, []), "incomplete"),
        (candidate("x", group=None), "no_siblings"),
        (candidate("x", tenant="other"), "no_siblings"),
        (candidate("x", instruction="max"), "no_siblings"),
    ],
)
def test_what_cannot_be_trained_on_is_left_out_and_counted(rollout, reason):
    made = batch(candidate("a", 1.0), candidate("b", 0.0), rollout)
    assert made.task_ids == ("a", "b")
    assert made.dropped.model_dump() == {**dict.fromkeys(made.dropped.model_dump(), 0), reason: 1}


def test_an_infrastructure_failure_does_not_move_its_siblings_baseline():
    without = batch(candidate("a", 1.0), candidate("b", 0.0))
    beside = batch(candidate("a", 1.0), candidate("b", 0.0), candidate("c", None))
    assert beside.groups == without.groups


def test_all_equal_groups_are_dropped_and_counted():
    made = batch(candidate("a", 1.0), candidate("b", 1.0), candidate("c", 0.0, group="h"), candidate("d", group="h"))
    assert made.task_ids == ("c", "d")
    assert made.dropped.all_equal == 2


def test_what_the_ledger_holds_is_not_trained_on_again():
    made = batch(candidate("a", 1.0), candidate("b", 0.0), trained={"a"})
    assert made.groups == ()
    assert (made.dropped.already_trained, made.dropped.no_siblings) == (1, 1)


def test_staleness_is_allowed_up_to_its_limit():
    pair = [candidate("a", 1.0, policy_version=2), candidate("b", 0.0, policy_version=3)]
    assert batch(*pair, max_staleness=1).task_ids == ("a", "b")
    assert batch(*pair).dropped.stale == 1


def test_a_forged_identity_is_refused():
    body = batch(candidate("a", 1.0), candidate("b", 0.0)).model_dump()
    with pytest.raises(ValidationError, match="does not belong to these rollouts"):
        Batch.model_validate({**body, "batch_id": "batch_0"})
