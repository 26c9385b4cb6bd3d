"""Names that a hostile shell tells of, as the agent is told of them."""

from pathlib import Path

from longstride.sandbox.base import Volume
from longstride.sandbox.files import WorkspaceFiles
from longstride.tools.bash import _noted
from longstride.tools.shell_state import DUMP, ShellState
from longstride.tools.tool import ToolResult

VALUE = b"t0p-secret"
DUMP_OF_BYTES = (
    b"\0braceexpand\0\0umask 0022\0/workspace\0000\0"
    b"1\0\xff\na\0echo " + VALUE + b"\0"
    b"1\0declare -f \xfe\0\xfe () \n{ \n    echo " + VALUE + b"\n}\n\0"
    b"variable\0\xfd\0declare -- \xfd=\"" + VALUE + b'"\n\x002\x000\0' + VALUE + b"\0"
    b"end\0"
)  # fmt: skip


def test_a_name_of_any_bytes_can_be_told(tmp_path: Path) -> None:
    state = ShellState(WorkspaceFiles(Volume(tmp_path, None, bounded=False, honest_times=True)))
    state.prepare(restart=False)
    (tmp_path / DUMP).write_bytes(DUMP_OF_BYTES)
    noted = _noted(ToolResult("ok", b""), state.take({"key": VALUE}))
    assert noted.output.decode() == (
        "[the shell's state: variable \\xfd is not kept: it holds secret key; function \\xfe is not kept: it holds secret key; "
        "alias \\xff\\na is not kept: it holds secret key]"
    )
    assert VALUE not in (state.load() or b"")
