"""Installs packages into a folder and prints a report, as JSON. Runs inside the sandbox: the standard library alone, any Python
from 3.9 on.

Each time everything that was ever asked for is resolved together and laid out anew beside the old folder, which is
replaced when all of it went well: what is there is always one consistent set.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

REQUESTED = "requested.txt"
LINE = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?P<extras>\[[A-Za-z0-9._, -]*\])?==\S+")
OPTIONS = (
    *("--isolated", "--no-input", "--no-cache-dir", "--no-compile", "--prefer-binary", "--disable-pip-version-check"),
    *("--progress-bar=off", "--retries=1", "--timeout=600"),
)


class Refused(Exception):
    """Why nothing was installed."""


def report(asked: dict[str, Any]) -> dict[str, Any]:
    """Install, and say what there is now.

    Args:
        asked: ``folder``, ``pip`` (a command's file), ``index`` (its URL), ``host`` (the index's), and ``packages``: for each
            its ``name``, its ``extras`` and the whole ``spec``.
    """
    folder = Path(asked["folder"])
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise Refused(f"{folder} is in the way: it must be a folder, or not be there")
    before, new = versions(folder), folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    try:
        code, said = installed(asked, wanted(asked["packages"], folder), new)
        if code:
            return {"code": code, "said": said}
        after = versions(new / "lib")
        record(new / "lib", asked["packages"], requested(folder), after)
        swap(folder, new)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return {"code": 0, "said": said, "before": before, "after": after}


def wanted(packages: list[dict[str, Any]], folder: Path) -> list[str]:
    """What is asked for now, and what was before, as it is."""
    named = {package["name"] for package in packages}
    kept = [line for name, line in requested(folder).items() if name not in named]
    return [*(package["spec"] for package in packages), *kept]


def requested(folder: Path) -> dict[str, str]:
    """Name → ``name[extras]==version``."""
    try:
        lines = (folder / REQUESTED).read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {normal(found["name"]): line for line in lines if (found := LINE.fullmatch(line))}


def installed(asked: dict[str, Any], specs: list[str], new: Path) -> tuple[int, str]:
    """pip's exit code, and what it said."""
    (new / "tmp").mkdir(parents=True)
    index = (f"--index-url={asked['index']}", f"--trusted-host={asked['host']}", f"--target={new / 'lib'}")
    done = subprocess.run(
        [sys.executable, "-I", asked["pip"], "install", *OPTIONS, *index, "--", *specs],
        env={**os.environ, "TMPDIR": str((new / "tmp").resolve())},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return done.returncode, done.stdout.decode(errors="replace")


def versions(folder: Path) -> dict[str, str]:
    """Name → version of what lies in a folder."""
    return {normal(found.metadata["Name"]): found.version for found in distributions(path=[str(folder)])}


def record(folder: Path, packages: list[dict[str, Any]], before: dict[str, str], versions: dict[str, str]) -> None:
    """What was asked for, for the next time; and git is to leave the folder alone."""
    extras = {name: (LINE.fullmatch(line) or {"extras": ""})["extras"] or "" for name, line in before.items()}
    extras.update(
        {package["name"]: f"[{','.join(package['extras'])}]" if package["extras"] else "" for package in packages}
    )
    lines = [f"{name}{extra}=={versions[name]}\n" for name, extra in sorted(extras.items()) if name in versions]
    (folder / REQUESTED).write_text("".join(lines))
    (folder / ".gitignore").write_text("*\n")


def swap(folder: Path, new: Path) -> None:
    """The new folder in the old one's place."""
    if folder.exists():
        folder.rename(new / "old")
    (new / "lib").rename(folder)


def normal(name: str) -> str:
    """As PEP 503 has it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> int:
    """The report on standard output."""
    try:
        told = report(json.loads(sys.argv[1]))
    except (Refused, OSError) as error:
        told = {"code": 1, "said": f"ERROR: {error}"}
    sys.stdout.write(json.dumps(told))
    return min(int(told["code"]), 1)
