"""``install_packages``: Python packages from the operator's index."""

import json
from dataclasses import replace
from typing import Annotated

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from pydantic import BaseModel, Field, StringConstraints, ValidationError

from longstride.sandbox.base import SUPPORT, Execution
from longstride.tools.inside.program import Program
from longstride.tools.packages.pip import ABSENT, FILE, pip
from longstride.tools.packages.place import FOLDER
from longstride.tools.tool import Arguments, Bench, Tool, ToolResult, of_execution

INSTALL = Program("install_packages")
HOST = "packages.longstride"
"""The index, as the sandbox knows it."""
NO_INDEX = (
    "no package index is configured: the operator names one by starting the tool-executor with "
    "LONGSTRIDE_TOOL_EXECUTOR_PACKAGE_INDEX=https://HOST/simple"
)
NO_PROXY = (
    "packages cannot be installed here: the {backend} backend gives no way out of its sandboxes; run the task on an executor "
    "whose backend is bubblewrap or runc"
)
FULL = "No space left on device"
NO_ROOM = "nothing was installed: the workspace has no room for it; the new set of packages lies beside the old one until it is whole"
REPORT_BYTES = 4 << 20
"""Output that is kept to read the report from, half of it for each stream."""


class InstallPackagesArguments(Arguments):
    """Arguments of ``install_packages``."""

    packages: Annotated[
        tuple[Annotated[str, StringConstraints(min_length=1, max_length=256)], ...], Field(min_length=1, max_length=64)
    ]
    """Requirements: names, extras and versions, e.g. ["requests>=2.31", "pandas[excel]==2.2.3"]."""


class Report(BaseModel):
    """What the program inside says."""

    code: int
    said: str
    before: dict[str, str] = {}
    """Versions by name."""
    after: dict[str, str] = {}


class InstallPackages(Tool[InstallPackagesArguments]):
    """Runs pip inside the sandbox; for this call alone its proxy answers for the index, and for nothing else."""

    name = "install_packages"
    description = (
        f"Install Python packages with pip into the workspace ({FOLDER}), where every later call finds them. "
        "Needs no network of the task: they come from an index that the operator allows. Wheels are preferred; "
        "source distributions are built in the sandbox."
    )
    arguments = InstallPackagesArguments
    example = {"packages": ["requests>=2.31"]}
    offered = False
    sends = False
    network = "the package index that the operator allows, and nothing else (LONGSTRIDE_TOOL_EXECUTOR_PACKAGE_INDEX)"

    def run(self, arguments: InstallPackagesArguments, bench: Bench) -> ToolResult:
        """Install them, and keep what was installed before as it is."""
        try:
            requirements = [_requirement(text) for text in arguments.packages]
        except ValueError as error:
            return ToolResult("invalid", str(error).encode())
        if why := _hindrance(bench):
            return ToolResult("failed", why.encode())
        assert bench.packages, "_hindrance says that there is an index"
        program = pip()
        assert program, "_hindrance says that there is a pip"
        execution = bench.run(
            *INSTALL.argv(json.dumps(_asked(requirements))),
            files={**INSTALL.files, FILE: program},
            output_bytes=REPORT_BYTES,
            sites={HOST: bench.packages},
        )
        return _told(execution, bench)


def _requirement(text: str) -> Requirement:
    """One requirement that names a package of the index.

    Raises:
        ValueError: it does not.
    """
    hint = "give a name, extras and versions, e.g. requests>=2.31 or pandas[excel]==2.2.3"
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise ValueError(f"{text!r} is not a package of an index: {hint}") from error
    if requirement.url:
        raise ValueError(f"{text!r} names an address, and packages come from the index alone: {hint}")
    return requirement


def _hindrance(bench: Bench) -> str | None:
    if bench.packages is None:
        return NO_INDEX
    given = bench.backend.capabilities()
    if not given.egress:
        return NO_PROXY.format(backend=given.backend)
    return None if pip() else ABSENT


def _asked(requirements: list[Requirement]) -> dict[str, object]:
    packages = [{"name": canonicalize_name(r.name), "extras": sorted(r.extras), "spec": str(r)} for r in requirements]
    index = {"index": f"http://{HOST}/simple/", "host": HOST, "pip": f"{SUPPORT}/{FILE}/pip", "folder": FOLDER}
    return {**index, "packages": packages}


def _told(execution: Execution, bench: Bench) -> ToolResult:
    bare = ToolResult(execution.status, b"", execution.exit_code, execution.limit, execution.usage)
    if execution.limit:
        _sweep(bench)
        return of_execution(replace(execution, stdout=b""))
    try:
        report = Report.model_validate_json(execution.stdout)
    except ValidationError:
        return of_execution(execution)  # the program itself broke, and its traceback says how
    if report.code == 0:
        return replace(bare, output=_summary(report).encode())
    if FULL in report.said:
        text = f"{NO_ROOM}\n{report.said}"
        return replace(bare, status="limit", limit=f"disk_mb={bench.limits.disk_mb}", output=text.encode())
    return of_execution(replace(execution, stdout=f"nothing was installed\n{report.said}".encode()))


def _sweep(bench: Bench) -> None:
    """What a killed call left of its work; the old packages return if they were just on their way out."""
    bench.run("sh", "-c", f"[ -e {FOLDER} ] || mv {FOLDER}.new/old {FOLDER}; rm -rf {FOLDER}.new")


def _summary(report: Report) -> str:
    """What changed, then the rest."""
    new = {name: version for name, version in report.after.items() if report.before.get(name) != version}
    same = {name: version for name, version in report.after.items() if name not in new}
    gone = [name for name in report.before if name not in report.after]
    lines = [f"installed {_list(new)}" if new else "nothing had to be installed"]
    lines += [f"removed, as nothing needs it any more: {', '.join(gone)}"] if gone else []
    lines += [f"there already: {_list(same)}"] if same else []
    return "\n".join(lines)


def _list(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
