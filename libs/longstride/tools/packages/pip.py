"""The pip that this interpreter has, as one file that a sandbox can run: its own Python need not have one."""

import io
import sysconfig
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

ABSENT = (
    "packages cannot be installed: the executor's own Python has no pip. Install it there: `python -m ensurepip`, "
    "`pip install pip`, or python3-venv (Debian, Ubuntu)"
)
FILE = "pip.whl"


@cache
def pip() -> bytes | None:
    """A wheel, or a zip file that is laid out like one; ``None``: there is none here."""
    for wheel in sorted(_bundled(), key=lambda path: path.name, reverse=True):
        return wheel.read_bytes()
    spec = find_spec("pip")
    return _zipped(Path(spec.origin).parent) if spec and spec.origin else None


def _bundled() -> Iterator[Path]:
    """ensurepip's own, or a distribution's folder of wheels."""
    folders = [Path(str(files("ensurepip"))) / "_bundled"] if find_spec("ensurepip") else []
    if shared := sysconfig.get_config_var("WHEEL_PKG_DIR"):
        folders.append(Path(shared))
    for folder in folders:
        yield from folder.glob("pip-*.whl")


def _zipped(package: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in sorted(package.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                archive.write(path, path.relative_to(package.parent))
    return buffer.getvalue()
