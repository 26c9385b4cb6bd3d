"""A terminal task, understood: what it becomes when it is published."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longstride.client.errors import UsageProblem
from longstride.client.input_files import LocalFile
from longstride.client.terminal.build import Build, Built, carried_out
from longstride.contracts.v1.check import CommandCheck
from longstride.contracts.v1.commands import SubmitTask
from longstride.contracts.v1.input_file import InputFile
from longstride.sandbox.base import SUPPORT, SandboxBackend
from longstride.sandbox.content import ContentStore
from longstride.sandbox.launcher import assigned
from longstride.tools.examiner import CHECKS

VERIFY = "longstride_verify.py"
SOLUTION = f"{SUPPORT}/solution"
LINKS = {"/tests": CHECKS, "/solution": SOLUTION, "/logs": "/tmp/logs"}
"""What tests and solutions expect of a container, and where a sandbox has it."""
INTERPRETER = '"$(command -pv python3 || command -v python3 || echo python3)"'
"""The system's own, whatever PATH the task sets: directories in it may be the agent's, who would write the verdict."""


@dataclass(frozen=True, slots=True)
class TerminalTask:
    """One folder, of either layout."""

    folder: Path
    instruction: str
    files: tuple[LocalFile, ...]
    """Of the environment: the agent's workspace, where nothing is built."""
    tests: tuple[LocalFile, ...]
    """Hidden; the paths are those below ``/tests``."""
    test: str
    """The one of them that runs the others."""
    test_timeout_s: float
    solution: tuple[LocalFile, ...]
    """Of the oracle; empty when the folder has none."""
    solve: str
    """The one of them to run."""
    fields: dict[str, Any]
    """Of ``SubmitTask``: limits, sandbox, environment."""
    solution_variables: dict[str, str] = field(default_factory=dict)
    """For the oracle alone."""
    test_variables: dict[str, str] = field(default_factory=dict)
    """For the tests alone."""
    notes: tuple[str, ...] = ()
    """What is otherwise than in a container, and may not matter."""
    build: Build | None = None
    """What makes the agent's workspace, where RUN steps compute something or files are many."""

    def built(self, backend: SandboxBackend, artifacts: ContentStore, session: str) -> Built | None:
        """Lay its files and carry out its RUN steps; ``None``: they are few, and no step computes something.

        Raises:
            UsageProblem: one fails.
            SandboxError: the sandbox broke.
            StorageError: the artifact store cannot be reached.
        """
        if self.build is None:
            return None
        submit = SubmitTask.model_validate({"instruction": self.instruction, **self.fields})
        try:
            return carried_out(self.build, submit.environment, submit.sandbox, backend, artifacts, session)
        except UsageProblem as problem:
            raise UsageProblem(f"{self.folder} cannot be run here:\n  {problem}") from problem

    @property
    def name(self) -> str:
        """The folder's own."""
        return self.folder.resolve().name

    def check(self, files: tuple[InputFile, ...]) -> CommandCheck:
        """Its check. ``files``: ``hidden``, laid where the check can read them."""
        variables = "".join(f"export {assigned(name, value)}; " for name, value in self.test_variables.items())
        return CommandCheck(
            name="tests",
            run=f'{variables}exec {INTERPRETER} "$LONGSTRIDE_CHECKS/{VERIFY}" {_quoted(self.test)}',
            files=files,
            timeout_s=self.test_timeout_s,
        )

    @property
    def all_files(self) -> tuple[LocalFile, ...]:
        """Everything that is read of the folder."""
        stages = self.build.stages if self.build else ()
        return (*self.files, *(file for stage in stages for file in stage.files), *self.tests, *self.solution)

    @property
    def hidden(self) -> tuple[LocalFile, ...]:
        """The tests, and what runs them."""
        return (*self.tests, LocalFile(Path(__file__).with_name("verify.py"), VERIFY))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
