"""Edits of a workspace, drawn by chance."""

import os
import shutil
from pathlib import Path

from hypothesis import strategies as st

NAMES = st.sampled_from(
    ["a", "b", "c", "c/a", "sub", "sub/a", "sub/b", "sub/deep", "sub/deep/a", "ü", "x y", "new\nline"]
)
TEXTS = st.sampled_from([b"", b"one", b"two", b"\x00\xff", b"one" * 2000])
MODES = st.sampled_from([0o600, 0o644, 0o755])
TIMES = st.integers(0, 2**33).map(lambda seconds: seconds * 10**9 + 7)
EDITS = st.one_of(
    st.tuples(st.just("write"), NAMES, TEXTS, TIMES),
    st.tuples(st.just("link"), NAMES, st.sampled_from(["a", "/etc/passwd", "nowhere/é"])),
    st.tuples(st.just("folder"), NAMES),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.just("mode"), NAMES, MODES),
    st.tuples(st.just("rename"), NAMES, NAMES),
    st.tuples(st.just("touch"), NAMES, TIMES),
)


def apply(root: Path, edit: tuple) -> None:
    """One edit; one that does not fit what is there does nothing."""
    kind, path, *rest = edit
    at = root / path
    try:
        match kind:
            case "write":
                at.parent.mkdir(parents=True, exist_ok=True)
                at.write_bytes(rest[0])
                os.utime(at, ns=(rest[1], rest[1]))
            case "link":
                at.parent.mkdir(parents=True, exist_ok=True)
                at.symlink_to(rest[0])
            case "folder":
                at.mkdir(parents=True)
            case "remove":
                shutil.rmtree(at) if at.is_dir() and not at.is_symlink() else at.unlink()
            case "mode":
                at.lstat()
                if not at.is_symlink():
                    at.chmod(rest[0] | 0o100 if at.is_dir() else rest[0])
            case "rename":
                at.rename(root / rest[0])
            case "touch":
                if at.is_file() and not at.is_symlink():
                    os.utime(at, ns=(rest[0], rest[0]))
    except OSError:
        return
