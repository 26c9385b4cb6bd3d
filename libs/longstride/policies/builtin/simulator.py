"""A workspace in memory that answers the tool calls of the task family as the real tools do, thousands a second.

Programs are run in this process, so they are read first: only the syntax that ``_READABLE`` lists, no attribute but
``csv.DictReader`` and ``csv.reader``, and files that are strings. Whatever goes beyond that is refused, not guessed at.
"""

import ast
import csv
import io
import posixpath
import traceback
from collections.abc import Mapping
from types import CodeType, SimpleNamespace

from longstride.contracts.v1.action import Action, Observation

_READABLE = (
    *(
        ast.Module,
        ast.Import,
        ast.alias,
        ast.Assign,
        ast.Expr,
        ast.Call,
        ast.keyword,
        ast.Attribute,
        ast.Name,
        ast.Constant,
    ),
    *(
        ast.ListComp,
        ast.GeneratorExp,
        ast.comprehension,
        ast.Subscript,
        ast.UnaryOp,
        ast.USub,
        ast.BinOp,
        ast.Div,
        ast.Add,
    ),
    *(ast.Sub, ast.Load, ast.Store, ast.List, ast.Tuple),
)
_BUILTINS = {f.__name__: f for f in (float, int, len, list, max, min, round, sorted, str, sum)}
_LONGEST_PROGRAM = 2000
_MOST_COMPREHENSIONS = 3
_LONGEST_LINE, _MOST_MATCHES = 200, 100
"""Of ``search_files``."""


class NotSimulated(Exception):
    """The call is outside what the simulator can answer faithfully."""


class Simulator:
    """The files of one task, and the three tools that the family needs."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = dict(files)

    def call(self, action: Action) -> Observation:
        """What the tool of that name would answer; ``submit`` is the caller's affair.

        Raises:
            NotSimulated: another tool or other arguments, or a program beyond the readable subset.
        """
        match action.tool, action.arguments:
            case "python", {"code": str(code)}:
                return self._python(code)
            case "search_files", {"pattern": str(pattern)}:
                return self._search(pattern)
        raise NotSimulated(f"{action.tool} with {sorted(action.arguments)}")

    def _python(self, code: str) -> Observation:
        out = io.StringIO()
        try:
            compiled = _compile(code)
        except (SyntaxError, ValueError) as error:
            return _failed(out, "".join(traceback.format_exception_only(error)))
        try:
            exec(
                compiled,
                {"__builtins__": {**_BUILTINS, "print": _printer(out), "open": self._open, "__import__": _import}},
            )
        except NotSimulated:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the program raises is its output
            return _failed(out, _traceback(error))
        if " at 0x" in out.getvalue():
            raise NotSimulated("an object as text")
        return Observation(status="ok", text=out.getvalue() or "(no output)", exit_code=0)

    def _open(self, path: object) -> io.StringIO:
        if not isinstance(path, str) or not _plain(path):
            raise NotSimulated(f"open({path!r})")
        clean = posixpath.normpath(path)
        if clean in self.files:
            return _File(self.files[clean], newline=None)
        if any(file.startswith(f"{clean}/") or clean.startswith(f"{file}/") for file in self.files):
            raise NotSimulated(f"open({path!r}), a directory")
        raise FileNotFoundError(2, "No such file or directory", path)

    def _search(self, pattern: str) -> Observation:
        if not pattern or "\n" in pattern or "\0" in pattern:
            raise NotSimulated(f"the pattern {pattern!r}")
        paths = sorted(path for path in self.files if pattern in path)
        lines = [
            f"{path}:{number}:{line[:_LONGEST_LINE]}"
            for path in sorted(self.files)
            for number, line in enumerate(self.files[path].splitlines(), 1)
            if pattern in line
        ]
        found = [*paths, *lines]
        more = [f"[{len(found) - _MOST_MATCHES} more matches]"] if len(found) > _MOST_MATCHES else []
        return Observation(status="ok", text="\n".join([*found[:_MOST_MATCHES], *more]) or "no match")


class _File(io.StringIO):
    """A file that must not be printed: a real one shows its name."""

    def __repr__(self) -> str:
        raise NotSimulated("a file as text")


def _plain(path: str) -> bool:
    """A short path within the workspace."""
    return (
        0 < len(path) < 200
        and "\0" not in path
        and path[0] != "/"
        and path[-1] != "/"
        and ".." not in path
        and path != "."
    )


def _compile(code: str) -> CodeType:
    """The code object of a program within the readable subset.

    Raises:
        SyntaxError, ValueError: it is no Python, with CPython's own message.
        NotSimulated: it is Python beyond the subset.
    """
    if len(code) > _LONGEST_PROGRAM:
        raise NotSimulated("a long program")
    try:
        tree = ast.parse(code, "<string>")
    except (RecursionError, MemoryError) as error:
        raise NotSimulated("a deeply nested program") from error
    nodes = list(ast.walk(tree))
    for node in nodes:
        _require_readable(node)
    if sum(isinstance(node, ast.comprehension) for node in nodes) > _MOST_COMPREHENSIONS:
        raise NotSimulated("many comprehensions")
    return compile(tree, "<string>", "exec")


def _require_readable(node: ast.AST) -> None:
    if not isinstance(node, _READABLE):
        raise NotSimulated(type(node).__name__)
    if isinstance(node, ast.Name) and node.id.startswith("_"):
        raise NotSimulated(f"the name {node.id}")
    if isinstance(node, ast.Import) and [(name.name, name.asname) for name in node.names] != [("csv", None)]:
        raise NotSimulated("another import")
    if isinstance(node, ast.Attribute) and not (
        isinstance(node.value, ast.Name) and node.value.id == "csv" and node.attr in ("DictReader", "reader")
    ):
        raise NotSimulated(f"the attribute {node.attr}")
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) > 10**6:
        raise NotSimulated("a large number")


def _printer(out: io.StringIO) -> object:
    def write(*values: object) -> None:
        print(*values, file=out)

    return write


def _import(name: str, *_: object) -> SimpleNamespace:
    assert name == "csv", "the reader let another import through"
    return SimpleNamespace(DictReader=csv.DictReader, reader=csv.reader)


def _traceback(error: Exception) -> str:
    """As ``python3 -c`` prints it: this module's own frames left out."""
    frames = traceback.TracebackException.from_exception(error, limit=None)
    frames.stack = traceback.StackSummary.from_list([f for f in frames.stack if f.filename != __file__])
    return "".join(frames.format())


def _failed(out: io.StringIO, errors: str) -> Observation:
    return Observation(status="failed", text=f"{out.getvalue()}{errors}exit code 1", exit_code=1)
