"""``fetch_url``: a page of the network."""

import json
from dataclasses import replace
from typing import Annotated, Literal
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, Field, StringConstraints, ValidationError

from longstride.contracts.v1.egress import host_name
from longstride.sandbox.base import Execution
from longstride.sandbox.files import relative
from longstride.tools.inside.program import Program
from longstride.tools.tool import Arguments, Bench, Tool, ToolResult, of_execution

FETCH = Program("fetch_page", ("readable",))
NO_WAY_OUT = (
    "nothing was fetched: this task has no network. It reaches the hosts that it was submitted with (--allow-host HOST)"
)
MEBIBYTE = 1 << 20
REPORT_BYTES = 16 * MEBIBYTE
"""Output that is kept to read the report from, half of it for each stream."""
SAFE = "!#$%&'()*+,/:;=?@[]~"
"""Characters that mean something in a URL, ``%`` included: what is escaped stays so."""


class FetchUrlArguments(Arguments):
    """Arguments of ``fetch_url``."""

    url: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
    """An http or https address."""
    method: Literal["GET", "HEAD"] = "GET"
    """HEAD asks for status, type and size alone."""
    path: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = None
    """A file of the workspace to save the body in, as it comes. Without one it is only shown, as text."""
    max_bytes: Annotated[int, Field(ge=1, le=1024 * MEBIBYTE)] = 10 * MEBIBYTE
    """A larger body is refused."""


class Report(BaseModel):
    """What the program inside says of an answer."""

    status: int
    reason: str
    url: str
    type: str
    size: int
    saved: str | None
    text: str | None


class Complaint(BaseModel):
    """What the program inside says when there is none."""

    error: str
    full: bool = False
    """The workspace is."""


class FetchUrl(Tool[FetchUrlArguments]):
    """Fetches inside the sandbox, through the call's proxy: its rules, its bounds and its record are those of any program."""

    name = "fetch_url"
    description = (
        "Fetch an http or https address of a host that this task may reach, and read status, type, size and text "
        "(HTML as plain text with its links). Give path to save the body in the workspace. Redirects are followed."
    )
    arguments = FetchUrlArguments
    example = {"url": "https://example.com/data.csv", "path": "data.csv"}
    offered = False
    sends = False
    network = "the hosts that the task names (--allow-host); without one it fetches nothing"

    def run(self, arguments: FetchUrlArguments, bench: Bench) -> ToolResult:
        """Fetch it; a status from 400 on is a failed call."""
        if bench.egress is None:
            return ToolResult("denied", NO_WAY_OUT.encode())
        try:
            asked = {"url": address(arguments.url), "method": arguments.method, "most": arguments.max_bytes}
            path = relative(bench.inside(arguments.path)) if arguments.path else None
        except ValueError as error:
            return ToolResult("invalid", str(error).encode())
        command = FETCH.argv(json.dumps({**asked, "path": path}))
        return told(bench.run(*command, files=FETCH.files, output_bytes=REPORT_BYTES), bench)


def address(url: str) -> str:
    """The URL in ASCII.

    Raises:
        ValueError: it is none that can be fetched.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{url[:200]!r} is not a URL: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url[:200]!r} is not a URL that can be fetched: give http://HOST/… or https://HOST/…")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL that can be fetched names no user and no password")
    host = host_name(parts.hostname)
    query = f"?{quote(parts.query, SAFE)}" if parts.query else ""
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{quote(parts.path or '/', SAFE)}{query}"


def told(execution: Execution, bench: Bench) -> ToolResult:
    """The report as text; what the network refused, in the proxy's words."""
    bare = ToolResult(execution.status, b"", execution.exit_code, execution.limit, execution.usage)
    if execution.limit:
        return of_execution(replace(execution, stdout=b"", stderr=b""))
    for connection in execution.connections:
        if connection.verdict != "allowed":
            status: Literal["denied", "failed"] = "denied" if connection.verdict == "refused" else "failed"
            return replace(bare, status=status, output=f"not fetched: {connection.why}".encode())
    try:
        if execution.exit_code:
            return _failed(Complaint.model_validate_json(execution.stdout), bare, bench)
        return _fetched(Report.model_validate_json(execution.stdout), bare)
    except ValidationError:
        return of_execution(execution)  # the program itself broke, and its traceback says how


def _failed(complaint: Complaint, bare: ToolResult, bench: Bench) -> ToolResult:
    output = f"not fetched: {complaint.error}".encode()
    if complaint.full:
        return replace(bare, status="limit", limit=f"disk_mb={bench.limits.disk_mb}", output=output)
    return replace(bare, output=output)


def _fetched(report: Report, bare: ToolResult) -> ToolResult:
    saved = f", saved as {report.saved}" if report.saved else ""
    head = (
        f"{report.status} {report.reason}".strip()
        + f" {report.url}\n{report.type or 'no type'}, {report.size} bytes{saved}"
    )
    if report.text is None and not report.saved and report.size:
        head += "\nThe body is not text; give a path to save it."
    good = report.status < 400
    body = f"\n\n{report.text}" if report.text else ""
    return replace(
        bare, status="ok" if good else "failed", exit_code=None, output=(head + body).encode(errors="replace")
    )
