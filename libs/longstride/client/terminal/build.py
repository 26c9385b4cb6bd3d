"""Carrying out a Dockerfile's RUN steps: once, where the task is imported, in a sandbox without a network.

What the steps leave in the workspace is kept, as the workspace that the task starts from. All of them run in one sandbox, so
that what one leaves in /tmp is there for the next.
"""

import re
import secrets
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from longstride.client.errors import UsageProblem
from longstride.client.input_files import LocalFile
from longstride.contracts.artifact import ArtifactRef
from longstride.contracts.v1.environment import WORKSPACE, Environment
from longstride.contracts.v1.limits import SandboxLimits
from longstride.sandbox.base import SUPPORT, Command, Execution, SandboxBackend
from longstride.sandbox.content import ContentStore
from longstride.sandbox.errors import WorkspaceUnusable
from longstride.sandbox.launcher import assigned
from longstride.sandbox.workspace import Workspaces
from longstride.tools.observation import printable

LONGEST_S = 600.0
"""Of all steps of one task together."""
FOLDER = f"{SUPPORT}/build"
SHOWN = 600
"""Characters of a failed step's output."""
READ_ONLY = "Read-only file system"
OUTSIDE = (
    "a step may write below WORKDIR, the places that files are copied to, and directories that it makes; not elsewhere"
)


@dataclass(frozen=True, slots=True)
class Step:
    """One RUN."""

    where: str
    """Its Dockerfile, line and text, as problems give them."""
    argv: tuple[str, ...]
    folder: str
    """Where it starts; made when it is missing."""
    variables: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Stage:
    """Files that are laid, and the step that follows; after the last files there is none."""

    files: tuple[LocalFile, ...]
    step: Step | None = None


@dataclass(frozen=True, slots=True)
class Build:
    """Everything that a Dockerfile does to the workspace, in order."""

    stages: tuple[Stage, ...]
    directories: tuple[str, ...]
    """That are there from the start; relative to the workspace."""

    @property
    def why(self) -> str:
        """What makes a workspace of its own needed."""
        if any(stage.step for stage in self.stages):
            return "has RUN steps"
        return f"starts with {sum(len(stage.files) for stage in self.stages)} files, too many for a message"


@dataclass(frozen=True, slots=True)
class Built:
    """What came of it."""

    workspace: ArtifactRef
    notes: tuple[str, ...]
    """What the agent does not get."""


def carried_out(
    build: Build,
    environment: Environment,
    limits: SandboxLimits,
    backend: SandboxBackend,
    artifacts: ContentStore,
    session: str,
) -> Built:
    """Build a workspace.

    Raises:
        UsageProblem: a step fails, or what it leaves cannot be kept; the text names its line.
        SandboxError: the sandbox broke.
        StorageError: the artifact store cannot be reached.
    """
    longest = {"wall_s": LONGEST_S, "cpu_s": LONGEST_S * max(1.0, limits.cpus)}
    limits = limits.model_copy(update=longest)
    mark = secrets.token_hex(8)
    files = dict(_support(build))
    files["build/run.sh"] = "\n".join(_script(build, mark)).encode()
    workspaces = Workspaces(artifacts, backend.volumes)
    try:
        with workspaces.open("build", None, (), limits) as workspace:
            argv = ("/bin/sh", f"{FOLDER}/run.sh")
            command = Command(argv, workspace.volume, limits, files=files, links=environment.links)
            execution = backend.run(command)
            if execution.status != "ok":
                raise UsageProblem(_why(build, execution, mark))
            return Built(workspace.commit(session), tuple(_lost(execution, mark, workspace.left_out)))
    except WorkspaceUnusable as error:
        raise UsageProblem(f"the workspace cannot be kept: {error}") from error
    finally:
        workspaces.close()


def _support(build: Build) -> Iterator[tuple[str, bytes]]:
    for number, stage in enumerate(build.stages):
        for file in stage.files:
            yield f"build/{number}/{file.path}", file.source.read_bytes()


def _script(build: Build, mark: str) -> Iterator[str]:
    """Each step says that it begins, and how it failed."""
    for directory in build.directories:
        yield f"mkdir -p {shlex.quote(f'{WORKSPACE}/{directory}')} || exit"
    for number, stage in enumerate(build.stages):
        for file in stage.files:
            source, target = f"{FOLDER}/{number}/{file.path}", f"{WORKSPACE}/{file.path}"
            mode = "755" if file.executable else "644"
            yield f"install -D -m {mode} {shlex.quote(source)} {shlex.quote(target)} || exit"
        if stage.step:
            yield from _step(number, stage.step, mark)
    yield f"echo; echo {mark}; find /tmp /dev/shm -mindepth 1 -maxdepth 1 | sort | head -n 20"


def _step(number: int, step: Step, mark: str) -> Iterator[str]:
    variables = " ".join(assigned(name, value) for name, value in step.variables.items())
    folder = shlex.quote(step.folder)
    yield f"printf '\\n{mark} {number}\\n' >&2"
    yield f"( mkdir -p {folder} && cd {folder} && exec env {variables} {shlex.join(step.argv)} ) </dev/null"
    yield f"code=$?; [ $code = 0 ] || {{ printf '\\n{mark} {number} exit code %s\\n' $code >&2; exit 1; }}"


def _why(build: Build, execution: Execution, mark: str) -> str:
    """The step that failed, and what it said."""
    errors = printable(execution.stderr)
    marks = re.findall(rf"^{mark} (\d+)(?: (exit code \d+))?$", errors, re.MULTILINE)
    said = printable(execution.stdout).strip() + "\n" + re.sub(rf"\n?{mark}.*\n", "\n", errors).strip()
    step = build.stages[int(marks[-1][0])].step if marks else None
    how = f"stopped by {execution.limit}" if execution.limit else marks[-1][1] if marks else "it could not be begun"
    told = f"{step.where if step else 'laying the files'}: this step failed here ({how})"
    told += f": {OUTSIDE}" if READ_ONLY in said else ""
    return f"{told}\n    {said.strip()[-SHOWN:].replace(chr(10), chr(10) + '    ')}".rstrip()


def _lost(execution: Execution, mark: str, left_out: tuple[str, ...]) -> Iterator[str]:
    """What the steps made and the agent does not see."""
    left = printable(execution.stdout).rpartition(f"\n{mark}\n")[2].split("\n")
    if paths := [path for path in left if path]:
        yield f"the RUN steps left {', '.join(paths)}, which no step of the agent sees: write below WORKDIR what it needs"
    if left_out:
        yield f"of what the RUN steps made, {', '.join(left_out[:20])} cannot be kept"
