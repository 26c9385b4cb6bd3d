"""Ids of a task's traces: reproducible, told apart, and W3C's."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from longstride.observability import trace_family
from longstride.observability.traceparent import SpanRef, parse

TASKS = st.text(min_size=1, max_size=60)
SEGMENTS = st.integers(0, trace_family.MAX_SEGMENT)


@settings(deadline=None)
@given(TASKS, SEGMENTS)
def test_a_segment_is_read_back_from_any_of_its_spans(task: str, segment: int) -> None:
    root = trace_family.root(task, segment)
    inside = str(SpanRef(root.trace_id, 0x1234))
    assert trace_family.segment_of(task, inside) == segment
    assert trace_family.root_beside(task, inside) == root


@settings(deadline=None)
@given(TASKS, TASKS, SEGMENTS, SEGMENTS)
def test_no_two_segments_share_a_trace(task: str, other: str, segment: int, another: int) -> None:
    same = (task, segment) == (other, another)
    assert (trace_family.root(task, segment).trace_id == trace_family.root(other, another).trace_id) is same


def test_a_foreign_traceparent_is_not_ours() -> None:
    client = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert trace_family.segment_of("task_1", client) is None
    assert trace_family.root_beside("task_1", client) == trace_family.root("task_1")
    assert trace_family.root_beside("task_1", None) == trace_family.root("task_1")


@pytest.mark.parametrize(
    ("step", "every", "segment"), [(0, 200, 0), (1, 200, 0), (200, 200, 0), (201, 200, 1), (401, 200, 2), (3, 1, 2)]
)
def test_steps_fall_into_segments(step: int, every: int, segment: int) -> None:
    assert trace_family.segment_for(step, every) == segment


@pytest.mark.parametrize("segment", [-1, trace_family.MAX_SEGMENT + 1])
def test_a_segment_out_of_range_is_refused(segment: int) -> None:
    with pytest.raises(ValueError, match="from 0 to"):
        trace_family.root("task_1", segment)


@settings(deadline=None)
@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.integers(0, 255))
def test_traceparents_are_opentelemetry_s(trace_id: int, span_id: int, flags: int) -> None:
    ref = SpanRef(trace_id, span_id, flags)
    assert parse(str(ref)) == ref
    carrier: dict[str, str] = {}
    theirs = TraceContextTextMapPropagator()
    theirs.inject(carrier, theirs.extract({"traceparent": str(ref)}))
    assert carrier["traceparent"] == str(ref)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "nonsense",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\n",
    ],
)
def test_what_is_no_traceparent_counts_as_none(text: str | None) -> None:
    assert parse(text) is None
