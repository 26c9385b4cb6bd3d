"""From a folder to a terminal task, or to everything that stands in the way, each with its line."""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import dropwhile
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from longstride.client.errors import UsageProblem
from longstride.client.input_files import LocalFile
from longstride.client.terminal.build_context import BuildContext
from longstride.client.terminal.content import is_inside, text_of, yaml_of
from longstride.client.terminal.layouts import Compose, ComposeService, HarborTask, TerminalBenchTask
from longstride.client.terminal.network import use_of_the_network
from longstride.client.terminal.recipe import NO_IMAGE, Recipe
from longstride.client.terminal.task import LINKS, VERIFY, TerminalTask
from longstride.client.working_directory import looked_in
from longstride.contracts.envelope import explain
from longstride.contracts.v1.commands import SubmitTask
from longstride.contracts.v1.environment import Environment
from longstride.contracts.v1.limits import Limits, SandboxLimits

LONGEST_CALL_S = 600.0
"""Of one tool call; a terminal has no such limit, but a call that hangs should not take the whole task with it."""
LONGEST_TEST_S = 3600.0
PROCESSES = 256
MOST_BYTES = 2 << 30
"""Of all files together: each is read whole, and holes in a file cost whoever made it nothing."""
CANARY = re.compile(r"(?:(?:<!--|#).*)?canary", re.IGNORECASE)
"""Starts a line at the head of an instruction that only marks it for training sets."""
HOST_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
M = TypeVar("M", bound=BaseModel)


def read(folder: Path) -> TerminalTask:
    """Read a task of either layout.

    Raises:
        UsageProblem: it is none, or it needs what sandboxes here cannot give; the text lists all of it.
    """
    if not folder.is_dir():
        raise UsageProblem(f"{folder} is not a folder ({looked_in()})")
    try:
        return _read(folder)
    except RecursionError as error:
        raise UsageProblem(f"{folder} cannot be run here: one of its files is nested too deeply") from error
    except OSError as error:  # names that no file system takes, circles of links
        raise UsageProblem(f"{folder} cannot be run here: {error}") from error


def _read(folder: Path) -> TerminalTask:
    if (folder / "task.toml").is_file():
        return _Harbor(folder).task()
    if (folder / "task.yaml").is_file():
        return _TerminalBench(folder).task()
    raise UsageProblem(
        f"{folder} is no terminal task: it has neither task.toml (Harbor) nor task.yaml (Terminal-Bench)"
    )


@dataclass
class _Import:
    """One folder on its way to a task."""

    folder: Path
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def refuse(self, why: str) -> None:
        self.problems.append(why)

    def finish(self, task: TerminalTask) -> TerminalTask:
        if (total := sum(file.source.stat().st_size for file in task.all_files)) > MOST_BYTES:
            self.refuse(f"its files have {total >> 20} MiB together; {MOST_BYTES >> 20} are taken")
        for file in task.tests:
            if use := use_of_the_network(file.source):
                self.refuse(f"tests/{file.path} {use}")
        self.require_nothing_refused()
        self.parsed("the task", SubmitTask, {"instruction": task.instruction, **task.fields})
        return task

    def require_nothing_refused(self) -> None:
        if self.problems:
            told = "\n".join(f"  {problem}" for problem in self.problems)
            raise UsageProblem(f"{self.folder} cannot be run here:\n{told}")

    def text(self, name: str) -> str:
        """A file that must be there, and lie in the folder."""
        return text_of(self.folder / name, self.folder)

    def parsed(self, name: str, model: type[M], values: Any) -> M:
        try:
            return model.model_validate(values)
        except ValidationError as error:
            raise UsageProblem(f"{self.folder / name}: {explain(error, 'it')}") from error

    def files(self, folder: str) -> tuple[LocalFile, ...]:
        """All files below a folder of the task, by their paths in it."""
        root = self.folder / folder
        if not is_inside(root, self.folder):
            self.refuse(f"{folder} is a link that leads outside the folder: replace it by its content")
            return ()
        found = tuple(_files(root)) if root.is_dir() else ()
        for file in found:
            if not is_inside(file.source, self.folder):
                self.refuse(f"{folder}/{file.path} is a link that leads outside the folder: replace it by its content")
        return tuple(file for file in found if is_inside(file.source, self.folder))

    def tests(self) -> tuple[LocalFile, ...]:
        found = self.files("tests")
        if any(file.path == VERIFY for file in found):
            self.refuse(f"tests/{VERIFY}: this name is taken by what runs the tests: rename the file")
        return found

    def follow(self, recipe: Recipe, dockerfile: Path) -> None:
        if not is_inside(recipe.context.folder, self.folder):
            self.refuse(f"{recipe.name}: its folder {recipe.context.folder} lies outside that of the task")
        elif dockerfile.is_file():
            recipe.follow(text_of(dockerfile, self.folder))
        else:
            self.refuse(f"{recipe.name} is missing: it says where the agent starts and with which files")
        self.problems += recipe.problems
        self.notes += recipe.notes

    def environment(self, recipe: Recipe, variables: Mapping[str, str]) -> Environment:
        values = {"variables": {**recipe.variables, **variables}, "links": {**LINKS, **recipe.places.links}}
        return self.parsed(recipe.name, Environment, values)

    def variables(self, where: str, given: Mapping[str, str]) -> dict[str, str]:
        """``${NAME:-default}`` by its default; a value of this machine's own would be a secret in a message."""
        for odd in [name for name in given if not VARIABLE.fullmatch(name)]:
            self.refuse(f"{where} names {odd[:80]!r}, which cannot be a variable")
        for name, value in given.items():
            for found in HOST_VARIABLE.finditer(value):
                if found[2] is None:
                    self.refuse(f"{where}.{name} takes ${{{found[1]}}} from this machine: secrets are not passed on")
        return {name: HOST_VARIABLE.sub(lambda found: found[2] or "", value) for name, value in given.items()}

    def limits(self, agent_s: float, sandbox: dict[str, Any]) -> dict[str, Any]:
        """Of the task: what the folder says, and for what it does not say, more than a question about a table needs."""
        call_s = min(agent_s, LONGEST_CALL_S)
        cpus = sandbox.get("cpus", SandboxLimits().cpus)
        given = {"wall_s": call_s, "cpu_s": call_s * cpus, "processes": PROCESSES, **sandbox}
        limits = {"wall_clock_s": agent_s, "step_timeout_s": call_s, "submissions": 1}
        self.parsed("limits", Limits, limits)
        self.parsed("limits", SandboxLimits, given)
        return {"limits": limits, "sandbox": given}

    def test_seconds(self, wanted: float) -> float:
        if wanted > LONGEST_TEST_S:
            self.notes.append(f"the tests get {LONGEST_TEST_S:g} s rather than {wanted:g}")
        return min(wanted, LONGEST_TEST_S)


class _Harbor(_Import):
    """``task.toml``, ``instruction.md``, ``environment/``, ``tests/test.sh``, ``solution/solve.sh``."""

    def task(self) -> TerminalTask:
        told = self._config()
        self._refuse_unsupported(told)
        recipe = Recipe(BuildContext(self.folder / "environment"), "environment/Dockerfile")
        self.follow(recipe, self.folder / "environment" / "Dockerfile")
        tests, solution = self.tests(), self.files("solution")
        if not any(file.path == "test.sh" for file in tests):
            self.refuse("tests/test.sh is missing: it says whether the task is done")
        environment, verifier = told.environment, told.verifier
        self.require_nothing_refused()
        return self.finish(
            TerminalTask(
                folder=self.folder,
                instruction=_without_marks(self.text("instruction.md")),
                files=recipe.files,
                build=recipe.build,
                tests=tests,
                test="test.sh",
                test_timeout_s=self.test_seconds(verifier.timeout_sec),
                solution=solution if any(file.path == "solve.sh" for file in solution) else (),
                solve="solve.sh",
                fields={
                    **self.limits(told.agent.timeout_sec or Limits().wall_clock_s, _resources(told)),
                    "environment": self.environment(recipe, self.variables("environment.env", environment.env)),
                },
                solution_variables=self.variables("solution.env", told.solution.env),
                test_variables=self.variables("verifier.env", verifier.env),
                notes=tuple(self.notes),
            )
        )

    def _config(self) -> HarborTask:
        try:
            return self.parsed("task.toml", HarborTask, tomllib.loads(self.text("task.toml")))
        except tomllib.TOMLDecodeError as error:
            raise UsageProblem(f"{self.folder / 'task.toml'} is not TOML: {error}") from error

    def _refuse_unsupported(self, told: HarborTask) -> None:
        environment, verifier = told.environment, told.verifier
        reasons = {
            "steps: tasks of several steps are not run: make a task of each": told.steps,
            f"environment.docker_image = {environment.docker_image!r}: {NO_IMAGE}": environment.docker_image,
            f"environment.os = {environment.os!r}: sandboxes are Linux": environment.os.lower() != "linux",
            "environment.gpus: sandboxes have no GPU": environment.gpus,
            "environment.tpu: sandboxes have no TPU": environment.tpu,
            "environment.mcp_servers: a task's own MCP servers are not started": environment.mcp_servers,
            "environment.healthcheck: nothing is started before the agent": environment.healthcheck,
            f"environment.workdir = {environment.workdir!r}: say WORKDIR in environment/Dockerfile": environment.workdir,
            "verifier.environment: the tests run where the agent worked: drop it": verifier.environment
            or verifier.environment_mode == "separate",
            "verifier.collect: no service outlives a step: let the tests look at files": verifier.collect,
        }
        self.problems += [f"task.toml {why}" for why, there in reasons.items() if there]
        for name in ("docker-compose.yaml", "docker-compose.yml"):
            if (self.folder / "environment" / name).exists():
                self.refuse(f"environment/{name}: services beside the agent's own are not started here")
        if environment.network_mode in ("public", "allowlist") or environment.allow_internet:
            self.notes.append("task.toml lets the agent use the network, which sandboxes here do not have")


def _resources(told: HarborTask) -> dict[str, Any]:
    environment = told.environment
    wanted = {
        "cpus": environment.cpus,
        "memory_mb": environment.memory_mb or environment.memory,
        "disk_mb": environment.storage_mb or environment.storage,
    }
    return {name: value for name, value in wanted.items() if value is not None}


class _TerminalBench(_Import):
    """``task.yaml``, ``docker-compose.yaml`` or a ``Dockerfile``, ``run-tests.sh``, ``tests/``, ``solution.sh``."""

    def task(self) -> TerminalTask:
        told = self.parsed("task.yaml", TerminalBenchTask, self._yaml("task.yaml"))
        service = self._service()
        if told.run_tests_in_same_shell:
            self.refuse(
                "task.yaml run_tests_in_same_shell: each call has a shell of its own: let the tests look at files"
            )
        context = self.folder / service.build.context
        recipe = Recipe(BuildContext(context, self._hidden(context)), service.build.dockerfile)
        self.follow(recipe, context / service.build.dockerfile)
        if not (self.folder / "run-tests.sh").is_file():
            self.refuse("run-tests.sh is missing: it says whether the task is done")
        self.require_nothing_refused()
        solution = self.folder / "solution.sh"
        return self.finish(
            TerminalTask(
                folder=self.folder,
                instruction=told.instruction,
                files=recipe.files,
                build=recipe.build,
                tests=(*self.tests(), LocalFile(self.folder / "run-tests.sh", "run-tests.sh", executable=True)),
                test="run-tests.sh",
                test_timeout_s=self.test_seconds(told.max_test_timeout_sec),
                solution=(LocalFile(solution, "solution.sh"),) if solution.is_file() else (),
                solve="solution.sh",
                fields={
                    **self.limits(told.max_agent_timeout_sec, {}),
                    "environment": self.environment(recipe, service.variables),
                },
                notes=tuple(self.notes),
            )
        )

    def _hidden(self, context: Path) -> tuple[str, ...]:
        """A context that is the task's own folder holds its solution."""
        return ("solution.sh", "solution.yaml") if context.resolve() == self.folder.resolve() else ()

    def _service(self) -> ComposeService:
        names = [name for name in ("docker-compose.yaml", "docker-compose.yml") if (self.folder / name).is_file()]
        if not names:
            return ComposeService()
        compose = self.parsed(names[0], Compose, self._yaml(names[0]))
        if len(compose.services) > 1:
            told = ", ".join(compose.services)
            self.refuse(f"{names[0]}: several services ({told}): those beside the agent's own are not started here")
        service = compose.services.get("client") or next(iter(compose.services.values()))
        if mounted := [volume for volume in service.volumes if "${T_BENCH_" not in str(volume)]:
            self.refuse(
                f"{names[0]}: volume {mounted[0]}: nothing is mounted into a sandbox: COPY it in the Dockerfile"
            )
        return service

    def _yaml(self, name: str) -> Any:
        return yaml_of(self.folder / name, self.folder)


def _without_marks(instruction: str) -> str:
    lines = instruction.splitlines(keepends=True)
    return "".join(dropwhile(lambda line: not line.strip() or CANARY.match(line), lines))


def _files(root: Path) -> Iterator[LocalFile]:
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield LocalFile(path, path.relative_to(root).as_posix(), os.access(path, os.X_OK))
