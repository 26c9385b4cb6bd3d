"""What the sandbox shows of this host, and which packages of a distribution that amounts to."""

import re
import shutil
import subprocess
import sys
from functools import cache

from longstride.sandbox.rootfs import ENVIRONMENT

PROGRAMS: dict[str, tuple[str, ...]] = {
    "bsdmainutils": ("hexdump",),
    "build-essential": ("gcc", "g++", "make"),
    "cargo": ("cargo",),
    "coreutils": ("sort",),
    "diffutils": ("diff",),
    "findutils": ("find",),
    "golang": ("go",),
    "golang-go": ("go",),
    "iproute2": ("ip",),
    "netcat": ("nc",),
    "netcat-openbsd": ("nc",),
    "nodejs": ("node",),
    "openssh-client": ("ssh",),
    "openssl": ("openssl",),
    "procps": ("ps",),
    "python": ("python3",),
    "python3-full": ("python3",),
    "rustc": ("rustc",),
    "util-linux": ("setsid",),
    "vim": ("vi",),
    "xz-utils": ("xz",),
}
"""Packages whose programs are not called as they are; any other is taken to bring a program of its name."""
MODULES = {"python3-pip": "pip", "python3-venv": "ensurepip"}
"""Python's modules that distributions package; ``python3-NAME`` is taken to bring NAME."""
UNNEEDED = frozenset(
    ("apt-transport-https", "apt-utils", "asciinema", "ca-certificates", "gnupg", "locales", "tmux", "tzdata")
)
"""For a container's own sake, or for the harness that watches its terminal."""


def missing(package: str) -> str | None:
    """What of a distribution's package the sandbox does not have here, in words; ``None`` when it has all."""
    name = re.split(r"[=<>~/:]", package, maxsplit=1)[0].lower()
    if name in UNNEEDED:
        return None
    if module := MODULES.get(name) or (name.removeprefix("python3-") if name.startswith("python3-") else None):
        return None if has_module(module.replace("-", "_")) else f"python3 has no module {module}"
    lacking = [program for program in PROGRAMS.get(name, (name,)) if not has_program(program)]
    return f"there is no program {', '.join(lacking)} in this host's /usr" if lacking else None


def missing_distribution(requirement: str) -> str | None:
    """What of a requirement of pip's the sandbox's python3 does not have, in words."""
    name, pinned = re.match(r"([A-Za-z0-9._-]*)(?:\[.*\])?(?:==(.+))?", requirement).groups()  # type: ignore[union-attr]
    have = _version_of(name)
    if have is None:
        return f"this host's python3 has no {name or requirement}"
    return f"this host's python3 has {name} {have}" if pinned and pinned != have else None


def has_program(name: str) -> bool:
    """Whether the sandbox finds a program. ``python3`` is always shown."""
    return name == "python3" or shutil.which(name, path=ENVIRONMENT["PATH"]) is not None


@cache
def has_module(name: str) -> bool:
    """Whether the sandbox's python3 can import a module."""
    found = _ask(f"import importlib.util; print(importlib.util.find_spec({name!r}) is not None)")
    return found == "True"


@cache
def python_version() -> str:
    """``3.11`` of the python3 that the sandbox shows."""
    return _ask("import sys; print('%d.%d' % sys.version_info[:2])")


@cache
def _version_of(distribution: str) -> str | None:
    code = "import importlib.metadata as m\ntry: print(m.version({0!r}))\nexcept Exception: pass"
    return _ask(code.format(distribution)) or None


def _ask(code: str) -> str:
    python = shutil.which("python3", path=ENVIRONMENT["PATH"]) or f"{sys.base_prefix}/bin/python3"
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.strip()
