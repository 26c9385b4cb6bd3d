"""``longstride audit``: who did what, and whether it is still what was written."""

import json as jsonlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from longstride.client import person
from longstride.client.cli.exit_codes import FAILED
from longstride.client.cli.options import Json, JsonLines
from longstride.client.connect import Deployment, connect
from longstride.client.errors import ClientError, NotFound, UsageProblem
from longstride.client.port import DEFAULT_TENANT
from longstride.client.screen import units
from longstride.client.screen.console import cell, say, show, show_json
from longstride.client.screen.table import table
from longstride.storage.audit import Hold, Verdict
from longstride.storage.audit_chain import AuditRow, moment, row_hash, written

PAGE = 1000
EVERYBODY = "Of this tenant alone (all)."
Everybody = Annotated[str | None, typer.Option("--tenant", metavar="NAME", help=EVERYBODY, show_default=False)]
Tenant = Annotated[str, typer.Option("--tenant", metavar="NAME", help="Whose entries.")]
Moment = datetime | None

app = typer.Typer(
    help="The audit: every action, approval and end, in a chain of hashes a tenant. Verify it, export it, keep it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def verify(
    tenant: Everybody = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", exists=True, dir_okay=False, help="An earlier export, kept where nobody changes it."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Find the first entry that was changed, removed, reordered or made up.

    An end that was cut off shows too; where the head was wound back with it, against an earlier export. Exit code 1: the
    chain of a tenant does not hold.
    """
    noted = _noted(against) if against else {}
    with connect(say) as deployment, deployment.reader.transaction() as uow:
        tenants = [tenant] if tenant else sorted({*uow.audit.tenants(), *noted})
        verdicts = [uow.audit.verify(name, noted.get(name)) for name in tenants]
    for verdict in verdicts:
        if against and verdict.tenant in noted and not verdict.broken:
            _require_whole(against, verdict, noted[verdict.tenant])
    if json:
        show_json([asdict(verdict) for verdict in verdicts])
    elif verdicts:
        show(*(_told(verdict, noted.get(verdict.tenant, {})) for verdict in verdicts))
    else:
        say("nothing has been audited yet")
    if any(verdict.broken for verdict in verdicts):
        raise typer.Exit(FAILED)


@app.command()
def export(
    tenant: Everybody = None,
    since: Annotated[Moment, typer.Option(metavar="TIME", help="From this moment on, UTC.", show_default=False)] = None,
    until: Annotated[Moment, typer.Option(metavar="TIME", help="Before this moment, UTC.", show_default=False)] = None,
    json: JsonLines = False,
) -> None:
    """Print entries as JSON Lines, each with its hash; kept elsewhere, `verify --against` compares with them."""
    begin, end = _utc(since), _utc(until)
    with connect(say) as deployment:
        with deployment.reader.transaction() as uow:
            tenants = [tenant] if tenant else uow.audit.tenants()
        for name in tenants:
            for row in _rows(deployment, name, begin, end):
                sys.stdout.write(_line(row) + "\n")


@app.command()
def retain(
    days: Annotated[str, typer.Argument(metavar="DAYS|forever", help="How long entries are kept.")],
    tenant: Tenant = DEFAULT_TENANT,
    json: Json = False,
) -> None:
    """Set how long a tenant's entries are kept. Older ones are removed hourly; what remains stays verifiable."""
    number = _days(days)
    with connect(say) as deployment, deployment.reader.transaction() as uow:
        uow.audit.retain(tenant, number, person.name())
    told = f"for {number} days" if number else "for ever"
    show_json({"tenant": tenant, "days": number}) if json else show(f"{tenant}  entries are kept {told}")


@app.command()
def hold(
    reason: Annotated[str, typer.Argument(metavar="REASON", help="Why, e.g. the case.")],
    task: Annotated[str | None, typer.Option(metavar="TASK", help="Of this task alone.", show_default=False)] = None,
    tenant: Tenant = DEFAULT_TENANT,
    json: Json = False,
) -> None:
    """Place a legal hold on a tenant or a task: nothing of it is removed until it is released."""
    if not reason.strip():
        raise UsageProblem("say why: a hold without a reason is nobody's to release")
    with connect(say) as deployment:
        head = deployment.reader.find(task) if task else None
        with deployment.reader.transaction() as uow:
            owner, covered = (head.tenant, head.id) if head else (tenant, None)
            placed = uow.audit.hold(owner, covered, reason, person.name())
    show_json(asdict(placed)) if json else show(f"{placed.id}  {_covers(placed)} is on hold")


@app.command()
def release(
    number: Annotated[int, typer.Argument(metavar="ID", help="Its number, as `holds` shows it.", min=1)],
    json: Json = False,
) -> None:
    """End a hold."""
    with connect(say) as deployment, deployment.reader.transaction() as uow:
        released = uow.audit.release(number, person.name())
    if released is None:
        raise NotFound(f"there is no hold {number} to release; `longstride audit holds --all` lists them")
    show_json(asdict(released)) if json else show(f"{number}  {_covers(released)} is on hold no more")


@app.command()
def holds(
    everything: Annotated[bool, typer.Option("--all", help="Also those that were released.")] = False,
    tenant: Everybody = None,
    json: Json = False,
) -> None:
    """List holds."""
    with connect(say) as deployment, deployment.reader.transaction() as uow:
        found = uow.audit.holds(tenant, released=everything)
    if json:
        show_json([asdict(one) for one in found])
        return None
    if not found:
        return say("nothing is on hold")
    grid = table(">id", "covers", "by", ">age", "*reason")
    for one in found:
        ended = f"released by {one.released_by}; " if one.released_at else ""
        grid.add_row(
            str(one.id), cell(_covers(one)), cell(one.placed_by), units.ago(one.placed_at), cell(ended + one.reason)
        )
    return show(grid)


def _covers(hold: Hold) -> str:
    return f"task {hold.task_id} of {hold.tenant}" if hold.task_id else f"tenant {hold.tenant}"


def _told(verdict: Verdict, noted: Mapping[int, str]) -> Text:
    gone = sum(gap.last - gap.first + 1 for gap in verdict.removed)
    removed = f"; {gone} removed by retention" if gone else ""
    if verdict.broken:
        return Text.assemble(
            (verdict.tenant, "name"), (f"  entry {verdict.broken.seq}: {verdict.broken.problem}", "bad")
        )
    compared = f", {len(noted)} compared with the export" if noted else ""
    held = f"  {verdict.rows} entries hold{compared}{removed}; the head is {verdict.head.seq} {verdict.head.sha256}"
    return Text.assemble((verdict.tenant, "name"), (held, "good"))


def _rows(deployment: Deployment, tenant: str, since: Moment, until: Moment) -> Iterator[AuditRow]:
    """A transaction a page: whoever reads slowly holds none open."""
    after = 0
    while True:
        with deployment.reader.transaction() as uow:
            page = uow.audit.read(tenant, after, PAGE, since, until)
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].seq


def _line(row: AuditRow) -> str:
    """Ends with the entry's own text, as it was hashed."""
    about = {
        "tenant": row.tenant,
        "seq": row.seq,
        "occurred_at": moment(row.occurred_at),
        "previous": row.previous,
        "sha256": row.sha256,
    }
    return f'{jsonlib.dumps(about, separators=(",", ":"))[:-1]},"entry":{row.text}}}'


def _noted(path: Path) -> dict[str, dict[int, str]]:
    """The hashes of an export, by tenant and seq.

    Raises:
        UsageProblem: it is none.
        ClientError: an entry is not what was exported.
    """
    noted: dict[str, dict[int, str]] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            row = _exported(jsonlib.loads(line))
        except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
            raise UsageProblem(f"{path}, line {number}: not an entry of `longstride audit export`") from error
        if row_hash(row) != row.sha256:
            raise ClientError(
                f"{path}, line {number}: entry {row.seq} of {row.tenant} was changed after it was exported"
            )
        noted.setdefault(row.tenant, {})[row.seq] = row.sha256
    if not noted:
        raise UsageProblem(f"{path} holds no entry: there is nothing to compare with")
    return noted


def _exported(row: dict[str, Any]) -> AuditRow:
    return AuditRow(
        tenant=str(row["tenant"]),
        seq=int(row["seq"]),
        text=written(row["entry"]),
        previous=str(row["previous"]),
        sha256=str(row["sha256"]),
        occurred_at=datetime.fromisoformat(row["occurred_at"]),
    )


def _require_whole(path: Path, verdict: Verdict, noted: Mapping[int, str]) -> None:
    """
    Raises:
        ClientError: an entry between two of the export is not in it, though retention had not removed it.
    """
    removed = {seq for gap in verdict.removed for seq in range(gap.first, gap.last + 1)}
    for seq in range(min(noted), max(noted)):
        if seq not in noted and seq not in removed:
            raise ClientError(f"{path}: entry {seq} of {verdict.tenant} was taken out of the export")


def _utc(at: Moment) -> Moment:
    return at and at.replace(tzinfo=UTC)


def _days(told: str) -> int | None:
    if told == "forever":
        return None
    if not told.isdecimal() or not 0 < int(told) < 100_000:
        raise UsageProblem(f"{told!r} is neither a number of days from 1 to 99999 nor forever")
    return int(told)
