"""What a Dockerfile asks for, as far as a sandbox above the host's own /usr can give it."""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from longstride.client.input_files import LocalFile
from longstride.client.terminal import here_document, programs
from longstride.client.terminal.build import Build, Stage, Step
from longstride.client.terminal.build_context import BuildContext, ContextProblem
from longstride.client.terminal.command_list import is_simple, joined, split
from longstride.client.terminal.dockerfile import DockerfileProblem, Instruction, expanded, instructions
from longstride.client.terminal.network import LOOKED_AT, NEEDS
from longstride.client.terminal.places import PlaceRefused, Places, shallow
from longstride.sandbox.rootfs import ENVIRONMENT

IGNORED = frozenset(("CMD", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "STOPSIGNAL", "VOLUME"))
"""They say nothing about where the agent starts, or with what."""
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
NO_NETWORK = "there is no network here: put what it fetches into the environment's folder and COPY it"
ONE_USER = "a sandbox has one user, who cannot become another or make one: drop it"
QUIET = re.compile(
    r"(?:apt-get|apt|apk|dnf|yum) (?:-\S+ )*(?:update|upgrade|clean|autoremove|autoclean)\b.*"
    r"|rm -rf? (?:/var/lib/apt/lists/\*|/var/cache/\S+|/root/\.cache\S*)|true|:|locale-gen.*|chown .*"
)
"""Housekeeping of an image, and owners: all files are the sandbox's one user's."""
DONE = ":"
"""What stands for a command of which nothing is left to do: others may be joined to it."""
OPTIONS = re.compile(r"set [-+].*")
"""Of the shell, for what follows."""
USERS = re.compile(r"(?:^|[;&|(])\s*+(?:useradd|adduser|groupadd|addgroup|usermod|passwd|chpasswd|su|sudo|gosu)\b")
OWN_INDEX = re.compile(r"(?=.*--no-index)(?=.*(?:--target|-t |--prefix|--root|\./)).*")
"""Of pip: it needs no network, and does not write where the sandbox cannot."""
INSTALL = re.compile(r"(?:apt-get|apt|apk|dnf|yum) (?:-\S+ )*(?:install|add) (?P<packages>.*)")
PIP = re.compile(r"(?:python3? -m )?(?:pip3?|uv pip) install (?P<packages>.*)")
CHMOD = re.compile(r"chmod (?:\+x|a\+x|u\+x|0?[0-7]*[1357][0-7]*) (?P<paths>.*)")
MKDIR = re.compile(r"mkdir (?:-p |-m ?\d+ )*(?P<paths>.*)")
MAKES = re.compile(r"\bmkdir (?:-\S+ (?:\d+ )?)*(?P<paths>[^;&|<>()\n]+)")
PLAIN = re.compile(r"[\w./@+-]+")
SHELL = ("/bin/sh", "-c")

MOST_LISTED = 64
"""Files that a task names one by one."""


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
    stages: list[Stage] = field(default_factory=list)
    """Up to the last RUN that computes something."""
    _arguments: dict[str, str] = field(default_factory=dict)
    _shell: tuple[str, ...] = SHELL
    _made: list[str] = field(default_factory=list)
    """Directories that are there without a file where the workspace is built."""
    _empty: list[str] = field(default_factory=list)
    """What is to be noted where it is not built."""
    _images: int = 0
    _rest: tuple[LocalFile, ...] = ()

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
        if not self._images:
            self.problems.append(f"{self.name}: there is no FROM")
        self._rest = self.places.take()
        for path in self._made if self.stages else ():
            self.places.claim(path)
        self.notes += () if self.stages else self._empty

    @property
    def files(self) -> tuple[LocalFile, ...]:
        """What lies in the workspace at the start, where nothing has to be built."""
        return () if self._builds else self._rest

    @property
    def build(self) -> Build | None:
        """What has to be carried out before there is a workspace; ``None``: its files are all."""
        if not self._builds:
            return None
        return Build((*self.stages, Stage(self._rest)), self.places.claimed)

    @property
    def _builds(self) -> bool:
        """Files that are many would not fit into the message of a task; a workspace is one reference."""
        return bool(self.stages) or len(self._rest) > MOST_LISTED

    def _last_workdir(self, found: list[Instruction]) -> PurePosixPath:
        """Where the agent starts; it decides what the workspace is, so it is needed before the first COPY."""
        workdir = PurePosixPath("/")
        for instruction in found:
            if instruction.keyword == "WORKDIR":
                workdir = shallow(workdir / expanded(instruction.value, self._scope).strip("\"'"))
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
            "SHELL": self._set_shell,
            "USER": self._user,
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

    def _user(self, instruction: Instruction) -> None:
        self._note(instruction, "every command, RUN's too, is run under a user of the sandbox's own")

    def _from(self, instruction: Instruction) -> None:
        self._images += 1
        if self._images > 1:
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
        self._made.append(self.places.current)

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

    def _set_shell(self, instruction: Instruction) -> None:
        self._shell = tuple(instruction.words())

    def _run(self, instruction: Instruction) -> None:
        """Housekeeping and what the host has already is done; the rest is computed, or as simple as a directory."""
        value, problem = _without_flags(instruction)
        if problem:
            self._refuse(instruction, f"{problem} is not given: use files of the environment's folder")
            return
        parts = split(value)
        left = [(DONE if self._is_done(instruction, command) else command, then) for command, then in parts]
        work = [command for command, _ in left if command != DONE and not OPTIONS.fullmatch(command)]
        if not self.stages and all(_only_marks(command) for command in work):
            for command in work:
                self._simple(instruction, command)
        elif work:
            self._compute(instruction, joined(left) if left != parts else value)

    def _is_done(self, instruction: Instruction, command: str) -> bool:
        """Whether nothing of a command is left to do; what the host lacks is a problem."""
        if not is_simple(command):
            return False
        if found := INSTALL.fullmatch(command):
            self._need(instruction, found["packages"], programs.missing, "install it on the executor's host")
        elif (found := PIP.fullmatch(command)) and not OWN_INDEX.fullmatch(command):
            how = (
                "install it on the executor's host, or COPY wheels and install them with --no-index --target where they"
                " are used"
            )
            self._need(instruction, found["packages"], programs.missing_distribution, how)
        else:
            return QUIET.fullmatch(command) is not None
        return True

    def _simple(self, instruction: Instruction, command: str) -> None:
        if found := CHMOD.fullmatch(command):
            self._chmod(instruction, _words(found["paths"]))
        elif found := MKDIR.fullmatch(command):
            for path in _words(found["paths"]):
                self._mkdir(instruction, path)

    def _compute(self, instruction: Instruction, script: str) -> None:
        script = here_document.alone(script)
        commands = [line for line, is_command in here_document.lines(script) if is_command]
        if script.startswith("#!"):
            self._refuse(instruction, "a here-document is read by the shell here: RUN python3 - <<EOF, for one")
        elif any(NEEDS.search(line[:LOOKED_AT]) for line in commands):
            self._refuse(instruction, NO_NETWORK)
        elif any(USERS.search(line) for line in commands):
            self._refuse(instruction, ONE_USER)
        else:
            self._plan(instruction, script)

    def _plan(self, instruction: Instruction, script: str) -> None:
        parts = here_document.lines(script)
        script = "\n".join(MAKES.sub(self._makes, line) if is_command else line for line, is_command in parts)
        where = f"{self.name} line {instruction.line}: {instruction}"
        scope = {**self._arguments, **self.variables}
        variables = {name: value for name, value in scope.items() if name.isidentifier()}
        argv = tuple(instruction.words()) if instruction.is_list else (*self._shell, script)
        step = Step(where, argv, self.places.current, variables)
        self.stages.append(Stage(self.places.take(), step))

    def _makes(self, found: re.Match[str]) -> str:
        """A mkdir of a step: what it makes outside the working directory is there already, so it must not mind."""
        words = expanded(found["paths"], self._scope).replace('"', "").replace("'", "").split()
        paths = [word for word in words if PLAIN.fullmatch(word)]
        for path in paths:
            self.places.make(path)
        outside = [path for path in paths if not self.places.is_inside(path)]
        self._made += map(self.places.absolute, outside)
        return found[0].replace("mkdir ", "mkdir -p ", 1) if outside else found[0]

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
        self._made.append(self.places.absolute(path))
        if not self.places.is_workdir(path):
            self._empty.append(
                f"{self.name} line {instruction.line}: {instruction}: {path} is there once a file is in it"
            )


def _only_marks(command: str) -> bool:
    """Whether a file's mode or an empty directory is all that a command makes."""
    return is_simple(command) and bool(CHMOD.fullmatch(command) or MKDIR.fullmatch(command))


def _without_flags(instruction: Instruction) -> tuple[str, str | None]:
    """What RUN runs, and the first flag that cannot be given."""
    value = shlex.join(instruction.words()) if instruction.is_list else instruction.value
    problem = None
    while value.startswith("--"):
        flag, _, value = value.partition(" ")
        harmless = flag.startswith("--mount=type=cache") or flag == "--network=none"
        problem = problem or (None if harmless else flag)
        value = value.lstrip()
    return value, problem


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise ContextProblem(str(error)) from error
