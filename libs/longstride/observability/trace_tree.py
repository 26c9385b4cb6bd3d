"""A task's spans as a tree to read. Pure, and without OpenTelemetry: the command line must start fast."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from longstride.observability import names
from longstride.observability.span_record import StoredSpan

Key = tuple[str, str]
"""(trace id, span id)."""
LEAST_RUN = 4
"""So many alike calls in a row become one line."""


@dataclass(slots=True)
class Node:
    """A span, or a stand-in for spans left out, and what happened under it."""

    name: str
    started_ns: int
    ended_ns: int
    """The end of the span. A root, which is a start marker, reaches from the first start to the last end under it."""
    status: str = "unset"
    detail: str = ""
    """What went wrong, and the attributes worth a line."""
    service: str = ""
    step: int | None = None
    span: StoredSpan | None = None
    """``None`` for a stand-in."""
    children: list["Node"] = field(default_factory=list)

    @property
    def duration_ns(self) -> int:
        """Never negative, whatever two machines' clocks say."""
        return max(0, self.ended_ns - self.started_ns)

    def walk(self) -> Iterator["Node"]:
        """This node and all below it, parents first."""
        pending = [self]
        while pending:
            node = pending.pop()
            yield node
            pending.extend(reversed(node.children))


PLUMBING = tuple(f"{name} " for name in (names.SEND, names.PROCESS, names.DECIDE))
"""How the names of spans begin that say how a message travelled, not what the agent did."""


def essential(root: Node) -> Node:
    """The tree without plumbing, in place: what lay under it moves up. A span that failed always stays."""
    for node in root.walk():
        node.children = [kept for child in node.children for kept in _kept(child)]
    return root


def _kept(node: Node) -> list[Node]:
    if node.status == "error" or not node.name.startswith(PLUMBING):
        return [node]
    return [kept for child in node.children for kept in _kept(child)]


def build(spans: Iterable[StoredSpan]) -> Node:
    """The tree of one task's spans, in any order, with any of them missing or doubled.

    The first root holds everything: its own spans, the markers of later segments with theirs beside them, and spans whose
    parent is not there (not written yet, or lost), marked as such. Without a root a stand-in takes its place.

    Raises:
        ValueError: there are no spans.
    """
    distinct = {(span.trace_id, span.span_id): span for span in spans}
    if not distinct:
        raise ValueError("no spans: has the task started, and has the service that ran it flushed its telemetry?")
    nodes = {key: _node(span) for key, span in distinct.items()}
    tops = _attach(nodes)
    root = _root(tops)
    for top in tops:
        if top is not root:
            root.children += [top, *_taken_out(top)]
    for node in root.walk():
        node.children.sort(key=lambda child: (child.started_ns, child.name))
    root.started_ns = min(node.started_ns for node in root.walk())
    root.ended_ns = max(node.ended_ns for node in root.walk())
    root.detail = " ".join([*filter(None, [_task_id(distinct.values())]), f"{len(distinct)} spans"])
    return root


def render(tree: Node, width: int = 100, color: bool = False, steps: int = 20) -> str:
    """The tree as text: offset from the start, duration, status, name, and what matters of it.

    Of a task with more than ``steps`` steps the first and last are shown, and those that failed; the others are summed up
    in a line. Alike calls in a row are one line with their number. No line is longer than ``width``.
    """
    shown = replace(tree, children=list(_gaps(tree.children, _hidden(tree.children, steps))))
    return "\n".join(
        _line(node, prefix, outer_step, tree.started_ns, width, color) for node, prefix, outer_step in _layout(shown)
    )


# --- building ----------------------------------------------------------------------------------------------------------


def _node(span: StoredSpan) -> Node:
    return Node(
        name=span.name,
        started_ns=span.started_ns,
        ended_ns=span.ended_ns,
        status=span.status,
        detail=_detail(span),
        service=span.service,
        step=span.step,
        span=span,
    )


def _attach(nodes: Mapping[Key, Node]) -> list[Node]:
    """Hang each node under its parent; returns those without. A circle, which only corrupt data has, is cut at its first span."""
    tops, reached = [], set[int]()
    for node in nodes.values():
        parent = _parent(node, nodes)
        if parent is None:
            tops.append(node)
        else:
            parent.children.append(node)
    for top in tops:
        reached.update(map(id, top.walk()))
    for node in sorted(nodes.values(), key=lambda node: node.started_ns):
        if id(node) not in reached:
            parent = _parent(node, nodes)
            assert parent is not None, "a node without a parent is a top, and reached"
            parent.children.remove(node)
            tops.append(node)
            reached.update(map(id, node.walk()))
    for top in tops:
        if top.span is not None and top.span.parent_span_id:
            top.detail = f"(parent missing) {top.detail}".rstrip()
    return tops


def _parent(node: Node, nodes: Mapping[Key, Node]) -> Node | None:
    assert node.span is not None
    return nodes.get((node.span.trace_id, node.span.parent_span_id or ""))


def _taken_out(top: Node) -> list[Node]:
    """The children of a later segment's marker, so that steps of all segments stand in one list; of other spans, none."""
    if top.span is None or names.SEGMENT not in top.span.attributes:
        return []
    children, top.children = top.children, []
    return children


def _root(tops: Sequence[Node]) -> Node:
    roots = [top for top in tops if top.span is not None and names.SEGMENT in top.span.attributes]
    if roots:
        return min(roots, key=lambda top: (_segment(top), top.started_ns))
    start = min(top.started_ns for top in tops)
    return Node("(root span missing)", start, start)


def _task_id(spans: Iterable[StoredSpan]) -> str | None:
    return next((span.task_id for span in spans if span.task_id), None)


def _segment(root: Node) -> int:
    assert root.span is not None
    segment = root.span.attributes[names.SEGMENT]
    return segment if isinstance(segment, int) else 0


def _detail(span: StoredSpan) -> str:
    """``in 512 out 40 v3``: the attributes worth a line, in the order of ``_SHOWN``."""
    facts = [label.format(_short(span.attributes[key])) for key, label in _SHOWN.items() if key in span.attributes]
    wrong = [span.status_detail or "failed"] if span.status == "error" else []
    segment = span.attributes.get(names.SEGMENT)
    return " ".join([*wrong, *facts, *([f"segment {segment}"] if segment else [])])


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


_SHOWN: dict[str, str] = {
    names.MESSAGE_TYPE: "{}",
    names.STATUS: "{}",
    names.OUTCOME: "{}",
    names.REASON: "({})",
    names.CHECK_LABEL: "{}",
    names.CHECK_SCORE: "score {}",
    names.EXIT_CODE: "exit {}",
    names.LIMIT: "limit {}",
    names.INPUT_TOKENS: "in {}",
    names.OUTPUT_TOKENS: "out {}",
    names.POLICY_VERSION: "v{}",
    names.REWARD_VALUE: "reward {}",
    names.LOSS: "loss {}",
    names.COST_USD: "${}",
    names.ATTEMPT: "attempt {}",
}

# --- folding -----------------------------------------------------------------------------------------------------------


def _hidden(children: Sequence[Node], steps: int) -> frozenset[int]:
    """The steps to leave out: all but the first and last, and the first few of those that failed."""
    numbers = sorted({child.step for child in children if child.step is not None})
    if len(numbers) <= steps:
        return frozenset()
    failed = sorted({child.step for child in children if child.step is not None and _failed(child)})
    head = (steps + 1) // 2
    return frozenset(numbers[head : len(numbers) - (steps - head)]) - frozenset(failed[:steps])


def _gaps(children: Iterable[Node], hidden: frozenset[int]) -> Iterator[Node]:
    for is_hidden, group in groupby(children, lambda child: child.step in hidden):
        if is_hidden:
            yield _summary(list(group))
        else:
            yield from group


def _summary(gap: Sequence[Node]) -> Node:
    numbers = sorted({node.step for node in gap if node.step is not None})
    spans = sum(1 for node in gap for _ in node.walk())
    failed = len({node.step for node in gap if _failed(node)})
    return Node(
        name=f"⋮ step {numbers[0]}" if len(numbers) == 1 else f"⋮ steps {numbers[0]}-{numbers[-1]}",
        started_ns=gap[0].started_ns,
        ended_ns=max(node.ended_ns for node in gap),
        detail=f"{len(numbers)} steps, {spans} spans, {failed or 'none'} failed",
    )


def _runs(children: Sequence[Node]) -> Iterator[Node]:
    """The children, with runs of alike calls joined."""
    start = 0
    for end in range(1, len(children) + 1):
        if end == len(children) or not _alike(children[start], children[end]):
            run = children[start:end]
            yield from [_joined(run)] if end - start >= LEAST_RUN else run
            start = end


def _alike(one: Node, other: Node) -> bool:
    if one.children or other.children or one.span is None or _failed(one) or _failed(other):
        return False
    return (one.name, one.service) == (other.name, other.service)


def _joined(run: Sequence[Node]) -> Node:
    spent = sum(node.duration_ns for node in run)
    return replace(
        run[0],
        name=f"{run[0].name} × {len(run)}",
        ended_ns=max(node.ended_ns for node in run),
        detail=f"{_duration(spent)} in all",
    )


def _failed(node: Node) -> bool:
    return any(below.status == "error" for below in node.walk())


# --- drawing -----------------------------------------------------------------------------------------------------------

_MARKS = {"error": "✗", "ok": "✓", "unset": "·"}
_COLOURS = {"error": "31", "ok": "32", "unset": "2"}
_TIMES = 21
"""Columns of offset, duration and mark."""


def _layout(root: Node) -> Iterator[tuple[Node, str, int | None]]:
    """Each node with the branches drawn before its name and the step of its parent, parents first."""
    pending: list[tuple[Node, str, str, int | None]] = [(root, "", "", None)]
    while pending:
        node, prefix, below, outer_step = pending.pop()
        yield node, prefix, outer_step
        branch, beyond = "└─ ", "   "
        for child in reversed(list(_runs(node.children))):
            pending.append((child, below + branch, below + beyond, node.step))
            branch, beyond = "├─ ", "│  "


def _line(node: Node, prefix: str, outer_step: int | None, origin_ns: int, width: int, color: bool) -> str:
    offset = max(0, node.started_ns - origin_ns)
    times = f"{'+' + _duration(offset):>9} {_duration(node.duration_ns):>8} "
    step = f"[{node.step}] " if node.step not in (None, outer_step) else ""
    name = _printable(step + node.name)
    rest = _printable("  ".join(filter(None, [node.service, node.detail])))
    mark = _MARKS.get(node.status, "·")
    room = max(8, width - _TIMES)
    text = f"{prefix}{name}" + (f"  {rest}" if rest else "")
    text = text if len(text) <= room else text[: room - 1] + "…"
    if not color:
        return f"{times}{mark} {text}"
    paint = _COLOURS.get(node.status, "2")
    named = min(len(prefix) + len(name), len(text))
    return f"\033[2m{times}\033[0m\033[{paint}m{mark}\033[0m {text[:named]}\033[{paint if node.status == 'error' else '2'}m{text[named:]}\033[0m"


def _duration(nanoseconds: int) -> str:
    """Three digits or so, with a unit: ``840µs``, ``12.3ms``, ``4.21s``, ``3m07s``, ``2h05m``."""
    seconds = nanoseconds / 1e9
    if seconds < 0.001:
        return f"{nanoseconds / 1e3:.0f}µs"
    if seconds < 1:
        return f"{seconds * 1e3:.{0 if seconds >= 0.1 else 1}f}ms"
    if seconds < 60:
        return f"{seconds:.{1 if seconds >= 10 else 2}f}s"
    minutes, left = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{left:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"


def _printable(text: str) -> str:
    """Control characters would let a tool's output steer the reader's terminal."""
    return "".join(char if char.isprintable() else "�" for char in text)
