"""What a shell says of itself at its end, and the script that makes another shell the same."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from longstride.sandbox.egress.inside import URL, VARIABLES
from longstride.sandbox.secrets import secret_in
from longstride.tools.observation import printable

OF_THE_SHELL = re.compile(
    rb"_|PWD|UID|EUID|PPID|SHLVL|SHELLOPTS|POSIXLY_CORRECT|LINENO|FUNCNAME|GROUPS|DIRSTACK|PIPESTATUS|HISTCMD|COPROC"
    rb"|S?RANDOM|SECONDS|EPOCH(SECONDS|REALTIME)|OPT(ARG|IND|ERR)|COMP_\w*|READLINE_\w*|BASH(?!_ENV$)\w*|__longstride\w*"
)
"""Variables that each shell sets by itself, and those that say how it was started."""
ON_BY_DEFAULT = (b"braceexpand", b"hashall", b"interactive-comments")
NOT_FOR_THE_NEXT = (b"noexec", b"onecmd", b"restricted", b"privileged")
"""Options with which no shell could restore, or carry out, anything."""
NOT_TO_BE_SET = (b"login_shell", b"restricted_shell")


WAYS_OUT = frozenset(name.encode() for name in VARIABLES if VARIABLES[name] == URL)
"""Where this call's relay is; the next call's may be elsewhere. What the agent set there itself is kept, and so is an unset."""
RELAY = re.compile(rb"http://127\.0\.0\.1:\d+")


class DumpIncomplete(ValueError):
    """The shell was killed before it had told everything, or told something else."""


@dataclass(frozen=True, slots=True)
class Part:
    """Something that is kept, or left out when it holds a secret."""

    what: str
    """As the agent knows it, e.g. ``variable TOKEN``."""
    script: bytes
    values: tuple[bytes, ...] = ()
    """What it holds, unquoted."""

    def secret(self, secrets: Mapping[str, bytes]) -> str | None:
        """The name of the one that it holds."""
        return next(filter(None, (secret_in(value, secrets) for value in (self.script, *self.values))), None)


def parts_of(dump: bytes) -> list[Part]:
    """In the order in which they are restored: options last, so that they are not in the way of the others.

    Raises:
        DumpIncomplete: it ends too early, or is none.
    """
    fields = iter(dump.split(b"\0"))
    try:
        return list(_parts(fields))
    except (RuntimeError, ValueError) as error:  # A generator makes a RuntimeError of its StopIteration.
        raise DumpIncomplete from error


def _parts(fields: Iterator[bytes]) -> Iterator[Part]:
    traps, options, switches, mask, folder = (next(fields) for _ in range(5))
    positional = [next(fields) for _ in range(int(next(fields)))]
    aliases = [(next(fields), next(fields)) for _ in range(int(next(fields)))]
    functions = [(next(fields), next(fields)) for _ in range(int(next(fields)))]
    yield Part("the file mode mask", b"builtin " + mask.strip())
    yield Part("the directory", _cd(folder), (folder,))
    yield from _variables(fields)
    yield from (part for head, text in functions if (part := _function(head, text)))
    yield from (_alias(name, value) for name, value in aliases)
    yield Part("the positional parameters", b"builtin set -- " + b" ".join(map(quoted, positional)), tuple(positional))
    yield Part("a trap", traps.strip())
    yield Part("options", b"\n".join(_switches(switches)))
    yield Part("options", _options(options.split(b":")))


def _variables(fields: Iterator[bytes]) -> Iterator[Part]:
    unset = set(WAYS_OUT)
    while (kind := next(fields)) == b"variable":
        name, text = next(fields), next(fields).rstrip(b"\n")
        values = tuple(next(fields) for _ in range(int(next(fields))))
        unset.discard(name)
        relayed = name in WAYS_OUT and RELAY.fullmatch(b"".join(values[1:2]))
        if not OF_THE_SHELL.fullmatch(name) and not relayed:
            yield Part(f"variable {shown(name)}", text, values)
    if kind != b"end":
        raise DumpIncomplete
    if unset:
        yield Part("a variable", b"builtin unset -v " + b" ".join(sorted(unset)))


def _cd(folder: bytes) -> bytes:
    """Folders outside the workspace are never there again."""
    there = quoted(folder)
    gone = quoted(b"bash: " + folder + b" is not there any more: this call starts in ")
    return b"builtin cd -- %s 2>/dev/null || builtin printf '%%s%%s\\n' %s \"$PWD\" >&2" % (there, gone)


def _function(head: bytes, text: bytes) -> Part | None:
    """``head`` is a line of ``declare -F``. The word ``function`` lets any name be one."""
    _, flags, name = head.split(b" ", 2)
    if name == b"trap" or name.startswith(b"__longstride"):
        return None
    script = b"function " + text.strip().removeprefix(b"function ")
    marks = b"\nbuiltin declare %s -- %s" % (flags, quoted(name)) if flags != b"-f" else b""
    return Part(f"function {shown(name)}", script + marks)


def _alias(name: bytes, value: bytes) -> Part:
    return Part(f"alias {shown(name)}", b"builtin alias -- " + quoted(name + b"=" + value), (value,))


def _switches(text: bytes) -> Iterator[bytes]:
    """From ``shopt -p``. Once aliases count, one of them may be named like a builtin."""
    for line in text.split(b"\n"):
        if line and line.split(b" ")[-1] not in NOT_TO_BE_SET:
            yield b"\\builtin " + line


def _options(on: list[bytes]) -> bytes:
    """One command: the next would be traced."""
    off = [b"+o " + name for name in ON_BY_DEFAULT if name not in on]
    return b"\\builtin set " + b" ".join([*off, *(b"-o " + name for name in on if name not in NOT_FOR_THE_NEXT)])


def shown(name: bytes) -> str:
    """For a sentence: names are whatever bytes an agent chose."""
    return printable(name).replace("\n", "\\n")


def quoted(word: bytes) -> bytes:
    """For a shell: these bytes and nothing else."""
    return b"'" + word.replace(b"'", b"'\\''") + b"'"
