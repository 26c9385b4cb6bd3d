"""The batch of an update: which rollouts are trained on, with which advantage, and which were left out and why.

A rollout is trained on once: the caller passes the ids that the training ledger holds. Its advantage is computed once,
from its group, and counts for all of its segments.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from longstride.contracts.model import Contract
from longstride.learning.advantage import Estimator, group_advantages, has_signal
from longstride.learning.segment import BrokenChain, Segment, StoredRecord, segments
from longstride.learning.trajectory import Trajectory

Count = Annotated[int, Field(ge=0)]


class Candidate(NamedTuple):
    """A finished rollout that may be trained on."""

    trajectory: Trajectory
    reward: float | None
    """Its newest reward; ``None``: no verdict."""
    records: Sequence[StoredRecord]
    """Its token records, in the order of ``trajectory.token_records``."""


class Dropped(Contract):
    """Rollouts left out of a batch, by reason; a rollout counts once, under the first reason that applies."""

    already_trained: Count = 0
    """In the ledger, or given twice."""
    unrewarded: Count = 0
    """No check, no verdict, or a failure that the agent did not cause."""
    incomplete: Count = 0
    """A model call has no token record, or its record continues one that is missing."""
    other_policy: Count = 0
    """Sampled, in whole or in part, by another policy than the batch's."""
    not_sampled: Count = 0
    """Greedy (temperature 0), so there is no distribution to improve, or truncated (top-p below 1), whose support is
    not recorded and cannot be recomputed exactly."""
    stale: Count = 0
    """Sampled by a version too far behind the base, or by one after it."""
    nothing_sampled: Count = 0
    """No token has mask 1."""
    no_siblings: Count = 0
    """The only rollout left of its group: no baseline."""
    all_equal: Count = 0
    """Of a group whose rewards are all equal: no signal."""

    @property
    def total(self) -> int:
        """All rollouts left out."""
        return sum(self.model_dump().values())


class Sample(Contract):
    """One rollout as it is trained on."""

    task_id: str
    """Also the id of its trajectory."""
    reward: float
    advantage: float
    """Holds for each token with mask 1 in each of the segments."""
    segments: Annotated[tuple[Segment, ...], Field(min_length=1)]

    @property
    def trainable(self) -> int:
        """How many tokens have mask 1, over all segments."""
        return sum(segment.trainable for segment in self.segments)

    @property
    def policy_versions(self) -> frozenset[int]:
        """The versions that sampled it."""
        return frozenset(turn.policy_version for segment in self.segments for turn in segment.turns)


class Group(Contract):
    """Sibling rollouts that share a baseline: one tenant's, under one group id, of one instruction."""

    group_id: str
    samples: Annotated[tuple[Sample, ...], Field(min_length=2)]


class Batch(Contract):
    """What one update trains on. Stored as JSON; ``UpdatePolicy.batch`` refers to it."""

    format_version: Literal[1] = 1
    batch_id: str
    """Derived from the policy, its version and the rollouts: the same batch always has the same id."""
    policy: str
    base_version: Annotated[int, Field(ge=0)]
    """The version that the update starts from."""
    estimator: Estimator = "grpo"
    """How the advantages were computed."""
    groups: tuple[Group, ...]
    """Empty: nothing was left to train on."""
    dropped: Dropped = Dropped()

    @model_validator(mode="after")
    def _identity_fits(self) -> "Batch":
        if len(set(self.task_ids)) != len(self.task_ids):
            raise ValueError("a rollout is in the batch twice")
        expected = batch_identity(self.policy, self.base_version, self.task_ids)
        if self.batch_id != expected:
            raise ValueError(f"batch_id {self.batch_id} does not belong to these rollouts; expected {expected}")
        return self

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The samples of all groups, in order."""
        return tuple(sample for group in self.groups for sample in group.samples)

    @property
    def task_ids(self) -> tuple[str, ...]:
        """The trajectories trained on: what the training ledger records."""
        return tuple(sample.task_id for sample in self.samples)


def batch_identity(policy: str, base_version: int, task_ids: Iterable[str]) -> str:
    """``batch_<32 hex digits>``: a hash of what is trained and on what, whatever the order of the rollouts."""
    named = "\n".join((policy, str(base_version), *sorted(task_ids)))
    return f"batch_{sha256(named.encode()).hexdigest()[:32]}"


def build_batch(
    candidates: Iterable[Candidate],
    *,
    policy: str,
    base_version: int,
    trained: Collection[str] = (),
    estimator: Estimator = "grpo",
    max_staleness: int = 0,
) -> Batch:
    """Choose, group and weigh rollouts.

    Args:
        candidates: finished rollouts.
        policy: whose rollouts count.
        base_version: what the update will start from.
        trained: task ids that an update of this policy has already used.
        estimator: the group's baseline.
        max_staleness: versions a rollout may lie behind ``base_version``.

    Returns:
        The batch, its groups and their samples ordered by id. ``groups`` is empty when nothing was left; ``dropped``
        says why.
    """
    rules = _Rules(policy, base_version, max_staleness)
    left_out: Counter[str] = Counter()
    seen, grouped = set(trained), defaultdict[_GroupKey, list[_Usable]](list)
    for candidate in candidates:
        task_id = candidate.trajectory.task_id
        usable = "already_trained" if task_id in seen else _judge(candidate, rules)
        seen.add(task_id)
        if isinstance(usable, str):
            left_out[usable] += 1
        else:
            grouped[_group_key(candidate.trajectory)].append(usable)
    groups = tuple(_weighed_groups(grouped, estimator, left_out))
    task_ids = [sample.task_id for group in groups for sample in group.samples]
    return Batch(
        batch_id=batch_identity(policy, base_version, task_ids),
        policy=policy,
        base_version=base_version,
        estimator=estimator,
        groups=groups,
        dropped=Dropped(**left_out),
    )


class _Rules(NamedTuple):
    policy: str
    base_version: int
    max_staleness: int

    def allows_version(self, version: int) -> bool:
        return self.base_version - self.max_staleness <= version <= self.base_version


class _GroupKey(NamedTuple):
    """Another tenant's rollouts, or those of another instruction, are no baseline, even under the same group id."""

    tenant: str
    group_id: str
    instruction_sha256: str


class _Usable(NamedTuple):
    task_id: str
    reward: float
    segments: tuple[Segment, ...]


def _judge(candidate: Candidate, rules: _Rules) -> _Usable | str:
    """The rollout, ready for its group, or the field of ``Dropped`` under which it is left out."""
    records = [stored.record for stored in candidate.records]
    if candidate.reward is None:
        return "unrewarded"
    if not candidate.trajectory.complete or _mismatched(candidate):
        return "incomplete"
    if any(record.policy != rules.policy for record in records):
        return "other_policy"
    if any(record.temperature == 0 or record.top_p < 1 for record in records):
        return "not_sampled"
    if not all(rules.allows_version(record.policy_version) for record in records):
        return "stale"
    if not any(any(record.mask) for record in records):
        return "nothing_sampled"
    try:
        return _Usable(candidate.trajectory.task_id, candidate.reward, segments(candidate.records))
    except BrokenChain:
        return "incomplete"


def _group_key(trajectory: Trajectory) -> _GroupKey:
    group_id = trajectory.group_id or trajectory.task_id
    return _GroupKey(trajectory.tenant, group_id, trajectory.instruction_sha256)


def _mismatched(candidate: Candidate) -> bool:
    return tuple(stored.ref for stored in candidate.records) != candidate.trajectory.token_records


def _weighed_groups(
    grouped: dict[_GroupKey, list[_Usable]], estimator: Estimator, left_out: Counter[str]
) -> Iterator[Group]:
    for key in sorted(grouped):
        members = sorted(grouped[key])
        rewards = [member.reward for member in members]
        if not has_signal(rewards):
            left_out["all_equal" if len(members) > 1 else "no_siblings"] += len(members)
            continue
        advantages = group_advantages(rewards, estimator)
        yield Group(group_id=key.group_id, samples=tuple(map(_sample, members, advantages)))


def _sample(member: _Usable, advantage: float) -> Sample:
    return Sample(task_id=member.task_id, reward=member.reward, advantage=advantage, segments=member.segments)
