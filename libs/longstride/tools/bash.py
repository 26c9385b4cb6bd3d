"""``bash``: a shell that goes on where the last call's ended."""

import errno
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from longstride.contracts.v1.environment import WORKSPACE
from longstride.sandbox.base import SUPPORT
from longstride.tools.shell_state import DUMP, ShellState, StateUnusable
from longstride.tools.tool import Arguments, Bench, Tool, ToolResult, of_execution

SESSION, LAST = "bash_session.sh", "bash_last.sh"
"""Names in the support folder."""
START = (
    "__longstride_line=$1 __longstride_dump=$2 __longstride_last=$3; set --; "
    f'. {SUPPORT}/{SESSION}; builtin eval "$__longstride_line"'
)
"""One line, so that bash numbers the lines of the command as the agent does."""


class BashArguments(Arguments):
    """Arguments of ``bash``."""

    command: Annotated[str, StringConstraints(min_length=1, max_length=65_536)]
    """The command line."""
    restart: bool = False
    """Start with a new shell, and forget what the last one left."""
    timeout_s: Annotated[float, Field(gt=0)] | None = None
    """Seconds to allow, when less than the task's own limit will do."""


class Bash(Tool[BashArguments]):
    """A new process each time, which is told all that the last one knew: nothing has to live between two steps."""

    name = "bash"
    description = (
        f"Run a command line in a shell that goes on where your last bash call ended (at first in {WORKSPACE}). Kept are the "
        "directory, variables, exports, functions, aliases, options, umask and traps, also when the line fails or calls exit; "
        "a call that is stopped by a limit changes none of them. Not kept: background processes and open files (they end with "
        "the call), files outside the workspace, a trap on EXIT (it runs at the call's end), and what holds a secret."
    )
    arguments = BashArguments
    example = {"command": "cd src && export DEBUG=1"}
    offered = False

    def run(self, arguments: BashArguments, bench: Bench) -> ToolResult:
        """Restore, run, keep."""
        state = ShellState(bench.workspace.files)
        try:
            _prepare(state, arguments)
            last = state.load()
        except StateUnusable as error:
            return ToolResult("failed", str(error).encode())
        execution = bench.run(
            *("bash", "--noprofile", "--norc", "-c", START, "bash"),
            *(arguments.command, f"{WORKSPACE}/{DUMP}", f"{SUPPORT}/{LAST}"),
            wall_s=arguments.timeout_s,
            files=_files(last),
        )
        return _noted(of_execution(execution), state.take(bench.secrets))


def _prepare(state: ShellState, arguments: BashArguments) -> None:
    """In a full workspace the line still runs: it may make room. What it leaves is then told of by ``take``."""
    try:
        state.prepare(restart=arguments.restart)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise


def _files(last: bytes | None) -> Mapping[str, bytes]:
    own = {SESSION: Path(__file__).with_name(SESSION).read_bytes()}
    return own if last is None else {**own, LAST: last}


def _noted(result: ToolResult, notes: list[str]) -> ToolResult:
    if not notes:
        return result
    text = f"[the shell's state: {'; '.join(notes)}]"
    seam = b"" if not result.output or result.output.endswith(b"\n") else b"\n"
    return replace(result, output=result.output + seam + text.encode())
