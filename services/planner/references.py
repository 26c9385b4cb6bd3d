"""The objects that a task's events refer to: what keeps them from being collected as orphans."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from longstride.agent import events as e
from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.check import CommandCheck
from longstride.contracts.v1.input_file import InputFile


class Reference(NamedTuple):
    """An object, what it is, and the step that made it."""

    ref: ArtifactRef
    kind: str
    step: int | None = None
    name: str | None = None


def references(happened: Iterable[e.TaskEvent]) -> Iterator[Reference]:
    """Every reference in the events, in order."""
    for event in happened:
        if (find := REFERENCES.get(type(event))) is not None:
            yield from find(event)


def _submitted(event: e.Submitted) -> Iterator[Reference]:
    files: list[InputFile] = [*event.submit.inputs]
    for check in event.submit.checks:
        files += check.files if isinstance(check, CommandCheck) else ()
    yield from (Reference(file.ref, "input", name=file.path) for file in files if file.ref)
    if event.submit.workspace:
        yield Reference(event.submit.workspace, "workspace")


def _forked(event: e.Forked) -> Iterator[Reference]:
    if event.context_parent:
        yield Reference(event.context_parent, "context")
    if event.workspace:
        yield Reference(event.workspace, "workspace", event.step)


def _proposed(event: e.ActionProposed) -> Iterator[Reference]:
    if event.tokens:
        yield Reference(event.tokens, "tokens", event.step)


def _observed(event: e.ActionObserved) -> Iterator[Reference]:
    if event.workspace:
        yield Reference(event.workspace, "workspace", event.step)
    if event.observation.full:
        yield Reference(event.observation.full, "observation", event.step)
    if event.traffic and event.traffic.log:
        yield Reference(event.traffic.log, "connections", event.step)
    yield from (Reference(a.ref, "output", event.step, a.name) for a in event.artifacts)


def _sealed(event: e.ContextSealed) -> Iterator[Reference]:
    yield Reference(event.ref, "context")


def _compacted(event: e.ContextCompacted) -> Iterator[Reference]:
    yield Reference(event.archived, "context")


REFERENCES: Mapping[type, Callable[[Any], Iterator[Reference]]] = {
    e.Submitted: _submitted,
    e.Forked: _forked,
    e.ActionProposed: _proposed,
    e.ActionObserved: _observed,
    e.ContextSealed: _sealed,
    e.ContextCompacted: _compacted,
}
