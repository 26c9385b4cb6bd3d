"""A task's workspace as it was after one of its steps."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256

from longstride.agent import events as e
from longstride.client.connect import Deployment
from longstride.client.errors import ClientError, NotFound, UsageProblem
from longstride.client.failures import translated
from longstride.client.screen import units
from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.commands import SubmitTask
from longstride.contracts.v1.input_file import InputFile
from longstride.sandbox import pack, snapshot
from longstride.sandbox.content import ContentStore
from longstride.sandbox.errors import WorkspaceCorrupt
from longstride.sandbox.manifest import FileEntry, Manifest, missing_parents
from longstride.sandbox.restore import INPUT_TIME_NS
from longstride.sandbox.snapshot import Snapshot
from longstride.storage.memory import MemoryArtifacts
from longstride.storage.tasks import TaskHead


@dataclass(frozen=True, slots=True)
class StepState:
    """A workspace that can be read."""

    step: int
    """0: before the first step."""
    snapshot: Snapshot
    store: ContentStore
    """Where its contents are."""


@contextmanager
def readable() -> Iterator[None]:
    """What can go wrong while a state is read, as the client's errors."""
    try:
        with translated():
            yield
    except WorkspaceCorrupt as error:
        raise ClientError(str(error)) from error


def step_states(deployment: Deployment, head: TaskHead, *steps: int | None) -> list[StepState]:
    """The states after these steps; ``None`` is the last one.

    Raises:
        NotFound: the task has no such step, or has not ended it yet.
        UsageProblem: no artifact store is configured.
    """
    if deployment.artifacts is None:
        raise UsageProblem(
            "no artifact store is configured: set LONGSTRIDE_S3_ENDPOINT, _ACCESS_KEY, _SECRET_KEY, _BUCKET"
        )
    submit, refs = _history(event for _, event in deployment.reader.events(head.id))
    with readable():
        return [_state(deployment.artifacts, head, submit, refs, step) for step in steps]


def _history(happened: Iterator[e.TaskEvent]) -> tuple[SubmitTask, dict[int, ArtifactRef | None]]:
    """What was submitted, and the workspace after each step that was carried out."""
    submit: SubmitTask | None = None
    refs: dict[int, ArtifactRef | None] = {}
    last: ArtifactRef | None = None
    for event in happened:
        if isinstance(event, e.Submitted):
            submit, last = event.submit, event.submit.workspace
            refs[0] = last
        elif isinstance(event, e.Forked):
            refs[0] = last = event.workspace
        elif isinstance(event, e.ActionObserved):
            refs[event.step] = last = event.workspace or last
    assert submit is not None, "a task has events"
    return submit, refs


def _state(
    store: ContentStore, head: TaskHead, submit: SubmitTask, refs: dict[int, ArtifactRef | None], step: int | None
) -> StepState:
    last = max(refs)
    number = last if step is None else step
    if number > last:
        raise NotFound(f"{units.short(head.id)} has carried out {last} steps, not {number}; 0 is its start")
    ref = refs[max(past for past in refs if past <= number)]  # an answer that was no action changed nothing
    if ref is not None:
        return StepState(number, snapshot.load(store, ref), store)
    return _inputs(number, store, submit.inputs)


def _inputs(step: int, store: ContentStore, inputs: tuple[InputFile, ...]) -> StepState:
    """As the executor lays them out."""
    data = {file.path: store.get(file.ref) if file.ref else (file.text or "").encode() for file in inputs}
    names = {path: sha256(content).hexdigest() for path, content in data.items()}
    files = {path: FileEntry(0o644, len(data[path]), INPUT_TIME_NS, name) for path, name in names.items()}
    manifest = Manifest(files, {}, dict.fromkeys(missing_parents(files, ()), 0o755))
    memory = MemoryArtifacts()
    contents = {names[path]: lambda content=content: content for path, content in data.items()}
    packs = [pack.write(memory, "inputs", contents)] if contents else []
    return StepState(step, snapshot.write_whole(memory, "inputs", manifest, packs), memory)
