"""What a Dockerfile asks for, as far as a sandbox above the host's own /usr can give it."""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from longstride.client.input_files import LocalFile
from longstride.client.terminal import programs
from longstride.client.terminal.build_context import BuildContext, ContextProblem
from longstride.client.terminal.dockerfile import DockerfileProblem, Instruction, expanded, instructions
from longstride.client.terminal.places import PlaceRefused, Places
from longstride.sandbox.rootfs import ENVIRONMENT

IGNORED = frozenset(("CMD", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "SHELL", "STOPSIGNAL", "USER", "VOLUME"))
"""They say nothing about where the agent starts: every command is run by the harness, under a user of the sandbox's own."""
GENERAL = frozenset(("almalinux", "alpine", "busybox", "buildpack-deps", "debian", "fedora", "rockylinux", "ubuntu"))
LANGUAGES = {
    "python": "python3",
    "gcc": "gcc",
    "node": "node",
    "golang": "go",
    "rust": "cargo",
    "perl": "perl",
    "ruby": "ruby",
}
"""Images of one language, and the program that stands in for them."""
NO_IMAGE = (
    "this image cannot be had here: the bubblewrap backend shows programs of its host's /usr, which can stand in for "
    "general images (ubuntu, debian, alpine, …) and those of a language that the host has. Use one of these and install "
    "what the task needs on the executor's host, or run the task where images are run"
)
NOT_RUN = (
    "steps that compute something are not carried out here: put what this one makes into the environment's folder and "
    "COPY it, or let the task's instruction ask for it"
)
QUIET = re.compile(
    r"(?:apt-get|apt|apk|dnf|yum) (?:-\S+ )*(?:update|upgrade|clean|autoremove|autoclean)\b.*"
    r"|rm -rf? (?:/var/lib/apt/lists/\*|/var/cache/\S+|/root/\.cache\S*)|true|:|set -\w+|locale-gen.*"
)
"""Housekeeping of an image."""
INSTALL = re.compile(r"(?:apt-get|apt|apk|dnf|yum) (?:-\S+ )*(?:install|add) (?P<packages>.*)")
PIP = re.compile(r"(?:python3? -m )?(?:pip3?|uv pip) install (?P<packages>.*)")
CHMOD = re.compile(r"chmod (?:\+x|a\+x|u\+x|0?[0-7]*[1357][0-7]*) (?P<paths>.*)")
MKDIR = re.compile(r"mkdir (?:-p |-m ?\d+ )*(?P<paths>.*)")


@dataclass
class Recipe:
    """A Dockerfile, read: files, variables, and what stands in the way."""

    context: BuildContext
    name: str
    """The Dockerfile's path as problems give it."""
    places: Places = field(default_factory=Places)
    variables: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """Each with its line, and what would make it possible."""
    notes: list[str] = field(default_factory=list)
    """What is otherwise than in the container, and may not matter."""
    _arguments: dict[str, str] = field(default_factory=dict)
    _stages: int = 0

    def follow(self, text: str) -> None:
        """Go through the Dockerfile; what cannot be done is in ``problems`` afterwards."""
        try:
            found = instructions(text)
            self.places.workdir = self._last_workdir(found)
        except (DockerfileProblem, PlaceRefused) as error:
            self.problems.append(f"{self.name} {error}")
            return
        for instruction in found:
            self._do(instruction)
        if not self._stages:
            self.problems.append(f"{self.name}: there is no FROM")

    def _last_workdir(self, found: list[Instruction]) -> PurePosixPath:
        """Where the agent starts; it decides what the workspace is, so it is needed before the first COPY."""
        workdir = PurePosixPath("/")
        for instruction in found:
            if instruction.keyword == "WORKDIR":
                workdir = workdir / expanded(instruction.value, self._scope).strip("\"'")
            elif instruction.keyword in ("ARG", "ENV"):
                {"ARG": self._arg, "ENV": self._env}[instruction.keyword](instruction)
        self._arguments.clear()
        self.variables.clear()
        return self.places.accepted(workdir) if len(workdir.parts) > 1 else workdir

    @property
    def _scope(self) -> dict[str, str]:
        return {"PATH": ENVIRONMENT["PATH"], "HOME": ENVIRONMENT["HOME"], **self._arguments, **self.variables}

    def _do(self, instruction: Instruction) -> None:
        doing: dict[str, Callable[[Instruction], None]] = {
            "FROM": self._from,
            "ARG": self._arg,
            "ENV": self._env,
            "WORKDIR": self._workdir,
            "COPY": self._copy,
            "ADD": self._copy,
            "RUN": self._run,
        }
        try:
            if instruction.keyword in doing:
                doing[instruction.keyword](instruction)
            elif instruction.keyword == "ENTRYPOINT":
                self._refuse(instruction, "nothing is started before the agent: let the instruction ask for it")
            elif instruction.keyword not in IGNORED:
                self._refuse(instruction, "this instruction is not known")
        except DockerfileProblem as error:
            self.problems.append(f"{self.name} {error}")
        except (ContextProblem, PlaceRefused) as error:
            self._refuse(instruction, str(error))

    def _refuse(self, instruction: Instruction, why: str) -> None:
        self.problems.append(f"{self.name} line {instruction.line}: {instruction}: {why}")

    def _note(self, instruction: Instruction, what: str) -> None:
        self.notes.append(f"{self.name} line {instruction.line}: {instruction}: {what}")

    # -- instructions ---------------------------------------------------------------------------------------------------

    def _from(self, instruction: Instruction) -> None:
        self._stages += 1
        if self._stages > 1:
            self._refuse(instruction, "builds of several stages are not carried out: COPY what they make")
            return
        words = [word for word in instruction.words() if not word.startswith("--")]
        image = expanded(words[0] if words else "", self._scope)
        told = self._stand_in(image)
        if told is None:
            self._refuse(instruction, NO_IMAGE)
        elif told:
            self._note(instruction, told)

    def _stand_in(self, image: str) -> str | None:
        """How the host stands in for an image, empty when there is no difference; ``None`` when it cannot."""
        name, _, tag = image.rpartition("/")[2].partition(":")
        family = next((known for known in (*GENERAL, *LANGUAGES) if re.fullmatch(f"{known}(-[0-9.-]+)?", name)), None)
        if family is None:
            return None
        if family in GENERAL:
            return "this host's /usr stands in for it"
        program = LANGUAGES[family]
        if not programs.has_program(program):
            return None
        if family == "python":
            wanted = (re.findall(r"\d+[.-]\d+", tag or name) or [""])[0].replace("-", ".")
            have = programs.python_version()
            return f"this host's python3, {have}, stands in for it" if wanted != have else ""
        return f"this host's {program} stands in for it"

    def _arg(self, instruction: Instruction) -> None:
        name, _, default = instruction.value.partition("=")
        self._arguments[name.strip()] = expanded(default.strip().strip("\"'"), self._scope)

    def _env(self, instruction: Instruction) -> None:
        if "=" in instruction.value.split(" ", 1)[0]:
            pairs = [word.partition("=")[::2] for word in instruction.words()]
        else:
            name, _, value = instruction.value.partition(" ")
            pairs = [(name, value.strip())]
        for name, value in pairs:
            self.variables[name] = expanded(value, self._scope)

    def _workdir(self, instruction: Instruction) -> None:
        self.places.enter(expanded(instruction.value, self._scope).strip("\"'"))

    def _copy(self, instruction: Instruction) -> None:
        words = [expanded(word, self._scope) for word in instruction.words()]
        flags = [word for word in words if word.startswith("--")]
        paths = [word for word in words if not word.startswith("--")]
        if odd := [flag for flag in flags if not flag.startswith(("--chmod=", "--chown=", "--link"))]:
            self._refuse(instruction, f"{odd[0]} is not carried out: copy files of the environment's folder")
            return
        if len(paths) < 2:
            self._refuse(instruction, "it needs sources and a destination")
            return
        modes = [flag.removeprefix("--chmod=") for flag in flags if flag.startswith("--chmod=")]
        executable = any("x" in mode or any(int(digit) & 1 for digit in re.findall(r"[0-7]", mode)) for mode in modes)
        *sources, target = paths
        for source in sources:
            self._copy_one(instruction, source, target, several=len(sources) > 1, executable=executable)

    def _copy_one(self, instruction: Instruction, source: str, target: str, *, several: bool, executable: bool) -> None:
        if re.match(r"(?:https?|git|ssh)[:@]", source):
            self._refuse(instruction, "there is no network: put the file into the environment's folder and COPY it")
            return
        if instruction.keyword == "ADD" and re.search(r"\.(?:tar|tgz|tar\.\w+|tbz2|txz)$", source):
            self._refuse(instruction, "archives are not unpacked: COPY it, or its content")
            return
        for found in self.context.find(source):
            into = several or target.endswith("/") or self.places.is_directory(target)
            self._lay(found, target, into=into, executable=executable)

    def _lay(self, found: Path, target: str, *, into: bool, executable: bool) -> None:
        """A directory's content, or a file, as Docker lays them."""
        if found.is_dir():
            self.places.make(target)
            for empty in self.context.empty_below(found):
                self.notes.append(f"{self.name}: {empty} is an empty directory, and there once a file is in it")
            for file in self.context.below(found):
                self.places.put(file, f"{target.rstrip('/') or '/'}/{file.relative_to(found).as_posix()}", executable)
        else:
            self.places.put(found, f"{target.rstrip('/')}/{found.name}" if into else target, executable)

    def _run(self, instruction: Instruction) -> None:
        for command in re.split(r"\s*(?:&&|;)\s*", instruction.value):
            if command and not QUIET.fullmatch(command):
                self._command(instruction, command)

    def _command(self, instruction: Instruction, command: str) -> None:
        if found := INSTALL.fullmatch(command):
            self._need(instruction, found["packages"], programs.missing, "install it on the executor's host")
        elif found := PIP.fullmatch(command):
            how = (
                "install it on the executor's host, or COPY wheels and install them with --no-index where they are used"
            )
            self._need(instruction, found["packages"], programs.missing_distribution, how)
        elif found := CHMOD.fullmatch(command):
            self._chmod(instruction, _words(found["paths"]))
        elif found := MKDIR.fullmatch(command):
            for path in _words(found["paths"]):
                self._mkdir(instruction, path)
        else:
            self._refuse(instruction, NOT_RUN)

    def _need(self, instruction: Instruction, packages: str, missing: Callable[[str], str | None], how: str) -> None:
        for package in [word for word in _words(packages) if not word.startswith("-")]:
            if lacking := missing(package):
                self._refuse(instruction, f"{lacking}: {how}")

    def _chmod(self, instruction: Instruction, paths: list[str]) -> None:
        for path in paths:
            if not self.places.make_executable(path):
                self._refuse(instruction, f"{path} is no file that was copied before")

    def _mkdir(self, instruction: Instruction, path: str) -> None:
        self.places.make(path)
        if not self.places.is_workdir(path):
            self._note(instruction, f"{path} is there once a file is in it")

    @property
    def files(self) -> tuple[LocalFile, ...]:
        """What lies in the workspace at the start."""
        return self.places.files


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise ContextProblem(str(error)) from error
