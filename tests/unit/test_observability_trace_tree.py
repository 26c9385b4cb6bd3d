"""The trace tree: its shape from any set of spans, and its text."""

import random
import re
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.observability import names
from longstride.observability.span_record import SpanRecord
from longstride.observability.trace_tree import Node, build, essential, render

MS = 1_000_000
START = 1_767_268_800 * 1000 * MS


def span(
    span_id: str, parent: str | None = "root", name: str = "decide", at: float = 0, lasts: float = 1, **changes: object
) -> SpanRecord:
    """A span that starts ``at`` milliseconds into the task and lasts ``lasts``."""
    attributes = changes.pop("attributes", {})
    made = SpanRecord(
        trace_id="t0",
        span_id=span_id,
        parent_span_id=parent,
        name=name,
        kind="internal",
        service="planner",
        task_id="task_1",
        step=None,
        status="unset",
        status_detail=None,
        started_ns=START + int(at * MS),
        ended_ns=START + int((at + lasts) * MS),
        attributes=attributes,  # type: ignore[arg-type]
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def marker(segment: int = 0, at: float = 0) -> SpanRecord:
    return span(
        "root",
        None,
        "invoke_agent longstride",
        at,
        0.01,
        trace_id=f"t{segment}",
        attributes={names.SEGMENT: segment},
    )


def outline(node: Node) -> list[object]:
    """Names and nesting alone."""
    return [node.name, *(outline(child) if child.children else child.name for child in node.children)]


TASK = [
    marker(),
    span("a", name="process planner", at=1, lasts=5, kind="consumer", attributes={names.MESSAGE_TYPE: "submit_task"}),
    span("b", "a", name="decide submit_task", at=2, lasts=3),
    span(
        "c",
        name="chat builtin",
        at=10,
        lasts=230,
        service="model-worker",
        step=1,
        attributes={names.INPUT_TOKENS: 512, names.OUTPUT_TOKENS: 40, names.POLICY_VERSION: 3},
    ),
    span(
        "d",
        name="execute_tool shell",
        at=250,
        lasts=4000,
        service="tool-executor",
        step=1,
        status="error",
        status_detail="TimeoutError: 4 s",
        attributes={names.STATUS: "timeout", names.EXIT_CODE: 137},
    ),
]


def test_children_hang_under_parents_by_start() -> None:
    tree = build(random.Random(1).sample(TASK, len(TASK)))
    assert outline(tree) == [
        "invoke_agent longstride",
        ["process planner", "decide submit_task"],
        "chat builtin",
        "execute_tool shell",
    ]
    assert tree.duration_ns == 4250 * MS  # the marker lasts until its last span ends


def test_the_text_is_this() -> None:
    assert render(build(TASK), width=100).splitlines() == [
        "     +0µs    4.25s · invoke_agent longstride  planner  task_1 5 spans",
        "   +1.0ms    5.0ms · ├─ process planner  planner  submit_task",
        "   +2.0ms    3.0ms · │  └─ decide submit_task  planner",
        "  +10.0ms    230ms · ├─ [1] chat builtin  model-worker  in 512 out 40 v3",
        "   +250ms    4.00s ✗ └─ [1] execute_tool shell  tool-executor  TimeoutError: 4 s timeout exit 137",
    ]


def test_colour_changes_no_letter() -> None:
    tree = build(TASK)
    coloured = render(tree, width=100, color=True)
    assert "\033[31m" in coloured
    assert re.sub(r"\033\[[0-9;]*m", "", coloured) == render(tree, width=100)


def test_a_lost_parent_is_said_and_its_child_shown_under_the_root() -> None:
    tree = build([marker(), span("x", "never-written", "chat builtin", at=3), span("y", "x", "send generated", at=4)])
    assert outline(tree) == ["invoke_agent longstride", ["chat builtin", "send generated"]]
    assert "chat builtin  planner  (parent missing)" in render(tree)


def test_without_a_root_a_stand_in_holds_what_there_is() -> None:
    tree = build([span("x", "root", "chat builtin", at=3), span("y", None, "decide", at=1)])
    assert outline(tree) == ["(root span missing)", "decide", "chat builtin"]


def test_later_segments_stand_in_the_same_list() -> None:
    second = [marker(1, at=100), span("x", "root", "chat builtin", at=101, trace_id="t1", step=201)]
    tree = build([*second, marker(), span("a", "root", "decide", at=1, step=1)])
    assert outline(tree) == ["invoke_agent longstride", "decide", "invoke_agent longstride", "chat builtin"]
    assert tree.span is not None
    assert tree.span.attributes[names.SEGMENT] == 0


def test_spans_written_twice_are_shown_once() -> None:
    assert outline(build([*TASK, *TASK])) == outline(build(TASK))


def test_no_spans_is_an_error_that_says_why() -> None:
    with pytest.raises(ValueError, match="no spans: has the task started"):
        build([])


IDS = st.sampled_from("abcdef")


@settings(deadline=None)
@given(st.dictionaries(IDS, st.tuples(st.one_of(st.none(), IDS, st.just("lost")), st.integers(0, 9)), min_size=1))
def test_every_span_is_in_the_tree_once_whatever_its_parent_says(shape: dict[str, tuple[str | None, int]]) -> None:
    """Circles included, which only corrupt data has."""
    spans = [span(name, parent, name, at) for name, (parent, at) in shape.items()]
    tree = build(spans)
    assert sorted(node.name for node in tree.walk() if node.span) == sorted(shape)
    text = render(tree)
    assert len(text.splitlines()) == len(shape) + 1


def long_task(steps: int, failed: frozenset[int] = frozenset()) -> list[SpanRecord]:
    spans = [marker()]
    for step in range(1, steps + 1):
        at = step * 10
        status = "error" if step in failed else "unset"
        spans += [
            span(f"p{step}", name="process planner", at=at, step=step),
            span(f"c{step}", name="chat builtin", at=at + 2, step=step, service="model-worker"),
            span(f"t{step}", name="execute_tool shell", at=at + 5, step=step, service="tool-executor", status=status),
        ]
    return spans


def test_the_middle_of_a_long_task_is_summed_up() -> None:
    lines = render(build(long_task(400)), steps=6).splitlines()
    assert len(lines) == 1 + 3 * 6 + 1
    assert lines[10].endswith("├─ ⋮ steps 4-397  394 steps, 1182 spans, none failed")
    assert "[3] execute_tool shell" in lines[9]
    assert "[398] process planner" in lines[11]


def test_failed_steps_of_the_middle_are_shown() -> None:
    text = render(build(long_task(400, frozenset({200}))), steps=6)
    assert "[200] execute_tool shell" in text
    assert "⋮ steps 4-199" in text
    assert "⋮ steps 201-397" in text


def test_many_failures_do_not_flood() -> None:
    text = render(build(long_task(400, frozenset(range(1, 401)))), steps=6)
    assert len(text.splitlines()) < 60
    assert "failed" in text


def test_all_steps_are_shown_when_asked_for() -> None:
    assert len(render(build(long_task(50)), steps=50).splitlines()) == 151


def test_alike_calls_in_a_row_are_one_line() -> None:
    sends = [span(f"s{n}", "a", "send generate.fast", at=n, lasts=2, status="ok") for n in range(7)]
    lines = render(build([marker(), span("a", lasts=9), *sends, span("z", "a", "decide", at=9)])).splitlines()
    assert lines[2].endswith("├─ send generate.fast × 7  planner  14.0ms in all")
    assert lines[3].endswith("└─ decide  planner")
    assert len(lines) == 4


def test_a_failed_call_is_never_joined() -> None:
    sends = [span(f"s{n}", name="send x", at=n, status="error" if n == 3 else "unset") for n in range(7)]
    assert len(render(build([marker(), *sends])).splitlines()) == 8


@settings(deadline=None)
@given(st.integers(20, 200), st.text(max_size=300))
def test_no_line_is_longer_than_the_width_or_steers_the_terminal(width: int, text: str) -> None:
    spans = [marker(), span("a", name=text, status="error", status_detail=text, attributes={names.STATUS: text})]
    lines = render(build(spans), width=width).split("\n")
    assert len(lines) == 2
    assert max(map(len, lines)) <= max(width, 29)
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0.0004, "0µs"),
        (0.84, "840µs"),
        (12.34, "12.3ms"),
        (999.4, "999ms"),
        (4210, "4.21s"),
        (12_340, "12.3s"),
        (187_000, "3m07s"),
        (3_599_900, "1h00m"),
        (7_500_000, "2h05m"),
        (360_000_000, "100h00m"),
    ],
)
def test_durations_have_three_digits_or_so(milliseconds: float, text: str) -> None:
    assert render(build([replace(marker(), ended_ns=START + int(milliseconds * MS))])).split()[1] == text


def test_clocks_that_disagree_give_no_negative_time() -> None:
    lines = render(build([marker(at=5), span("a", at=0, lasts=-3)])).splitlines()
    assert lines[1].split()[:2] == ["+0µs", "0µs"]


@pytest.mark.parametrize("shape", ["flat", "deep"])
def test_twenty_thousand_spans_take_a_second_or_so(shape: str) -> None:
    parents = ["root" if shape == "flat" or n == 0 else f"s{n - 1}" for n in range(20_000)]
    spans = [marker(), *(span(f"s{n}", parent, at=n, step=n // 5) for n, parent in enumerate(parents))]
    started = time.process_time()
    tree = build(spans)
    assert sum(1 for _ in tree.walk()) == 20_001
    if shape == "flat":
        assert len(render(tree).splitlines()) < 200
    assert time.process_time() - started < 10  # linear: below 1 s; quadratic: minutes


def test_the_essential_tree_leaves_out_how_messages_travelled_and_keeps_what_failed_on_the_way() -> None:
    spans = [
        marker(),
        span("p", name="process planner", at=1),
        span("d", "p", name="decide generated", at=1),
        span("r", "d", name="reflect", at=1),
        span("s", "d", name="send generate.fast", at=2),
        span("f", "d", name="send reply", at=3, status="error"),
        span("c", name="chat builtin", at=4),
    ]
    assert outline(essential(build(spans))) == ["invoke_agent longstride", "reflect", "send reply", "chat builtin"]
